"""Times of the day: cron expressions and time zones, as Airflow takes them."""

from __future__ import annotations

from zoneinfo import ZoneInfo


def valid_cron(expression: str) -> str:
    """Raises ValueError unless it has five fields and a time that comes."""
    from croniter import CroniterError, croniter  # not above: a sweep of one host does without

    try:
        if len(expression.split()) != 5:
            raise ValueError
        croniter(expression).get_next()
    except (CroniterError, ValueError):
        raise ValueError(
            f"{expression!r} is no cron expression, such as '0 2 * * *' (minute, hour, day, month, weekday)"
        ) from None
    return expression


def valid_timezone(name: str) -> str:
    """Raises ValueError unless it is a zone of the IANA database."""
    if name == "UTC":  # also on a machine without the database
        return name
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # an unknown name, a folder, a path
        raise ValueError(f"there is no time zone {name!r}; one is 'Europe/Berlin', another 'UTC'") from None
    return name
