# Build:  docker build -t flopwatch .
# Run:    docker run --rm --network host -v /sys:/host/sys:ro -v /proc:/host/proc:ro \
#             --read-only --cap-drop ALL -v "$PWD/config.yaml:/etc/flopwatch/config.yaml:ro" \
#             flopwatch run --config /etc/flopwatch/config.yaml      (with `root: /host` in the file)
ARG PYTHON_VERSION=3.13

FROM python:${PYTHON_VERSION}-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
RUN python -m pip wheel --quiet --no-cache-dir --no-deps --wheel-dir /wheels .
# The environment holds no pip: nothing is installed in a running container.
RUN python -m venv --without-pip /venv \
 && python -m pip --python /venv/bin/python install --quiet --no-cache-dir /wheels/*.whl

FROM python:${PYTHON_VERSION}-slim
LABEL org.opencontainers.image.title="flopwatch" \
      org.opencontainers.image.description="Per-node observability for AI infrastructure" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /venv /venv
# Nothing is written at run time: the root file system may be read-only.
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 9810
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9810/-/healthy', timeout=2)"]
ENTRYPOINT ["flopwatch"]
CMD ["run"]
