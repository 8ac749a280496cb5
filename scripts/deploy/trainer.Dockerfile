# docker build -f scripts/deploy/trainer.Dockerfile -t callwright-trainer .
FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv bubblewrap git \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH OMP_WAIT_POLICY=passive
WORKDIR /app
COPY . /app
RUN pip install --no-cache-dir --constraint constraints.txt ".[train,servicebus,web]"
# runs/ is what a run leaves behind: mount a volume there.
VOLUME /app/runs
ENTRYPOINT ["callwright"]
CMD ["train", "--help"]
