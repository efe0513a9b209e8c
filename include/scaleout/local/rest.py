"""The few requests that the stack makes of its own Airflow."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from scaleout.local.ports import ADDRESS

LIMIT_S = 10.0


@dataclass(frozen=True)
class Rest:
    """The API server on `port`. A request that gets no answer gives the status 0."""

    port: int

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        """The status, and the JSON document that was answered or None."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, None

    def token(self, user: str, password: str) -> str | None:
        """A bearer token, or None while there is none to be had."""
        status, answer = self.ask("POST", "/auth/token", {"username": user, "password": password})
        return answer["access_token"] if status == 201 else None

    def health(self) -> dict[str, dict[str, Any]]:
        """What Airflow says of its parts (`metadatabase`, `scheduler`, `dag_processor`); empty while it says nothing."""
        status, answer = self.ask("GET", "/api/v2/monitor/health")
        return answer if status == 200 else {}
