# The image of docker-compose.yaml: Airflow from the lock, and the DAG with what it imports. No secret and no setting is in it.
FROM python:3.11-slim-bookworm

COPY requirements/orchestrator.lock /tmp/orchestrator.lock
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: -r /tmp/orchestrator.lock \
    && printf '#!/bin/sh\nexec /opt/venv/bin/python -m scaleout.cli "$@"\n' > /opt/venv/bin/scaleout \
    && chmod 755 /opt/venv/bin/scaleout

# Any user id of group 0 may write here, as in Airflow's own image: the keys of the nodes belong to a user of the host.
RUN useradd --uid 50000 --gid 0 --create-home scaleout \
    && install -d -o scaleout -g 0 -m 775 /home/scaleout /opt/airflow /opt/airflow/logs /var/lib/scaleout

COPY . /opt/scaleout
RUN chmod -R a+rX /opt/scaleout

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/scaleout/include:/opt/scaleout \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONUTF8=1 \
    HOME=/home/scaleout \
    USER=scaleout \
    AIRFLOW_HOME=/opt/airflow \
    SCALEOUT_HOME=/var/lib/scaleout
WORKDIR /opt/airflow
USER scaleout
ENTRYPOINT ["airflow"]
CMD ["version"]
