# Build:  docker build -t flopwatch .                      (docker buildx build --sbom=true for an SBOM)
# Run:    docker run --rm --read-only --cap-drop ALL --network host --runtime nvidia \
#             -e NVIDIA_VISIBLE_DEVICES=all -e NVIDIA_DRIVER_CAPABILITIES=utility \
#             -v "$PWD/config.yaml:/etc/flopwatch/config.yaml:ro" \
#             flopwatch run --config /etc/flopwatch/config.yaml
# The base is pinned by version, and by digest with
#         --build-arg PYTHON_DIGEST=@sha256:...            (docker buildx imagetools inspect python:...)
ARG PYTHON_VERSION=3.13
ARG DEBIAN_VERSION=bookworm
ARG PYTHON_DIGEST=

FROM docker.io/library/python:${PYTHON_VERSION}-slim-${DEBIAN_VERSION}${PYTHON_DIGEST} AS build
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY deploy/build.lock deploy/requirements.lock deploy/
# The environment holds no pip: nothing is installed in a running container. What is installed leaves
# its metadata, which is what tools for SBOMs read.
RUN python -m pip install --quiet --require-hashes --requirement deploy/build.lock \
 && python -m venv --without-pip /venv \
 && python -m pip --python /venv/bin/python install --quiet --only-binary :all: \
        --require-hashes --requirement deploy/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
RUN python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python -m pip --python /venv/bin/python install --quiet --no-deps --no-index /wheels/*.whl

FROM docker.io/library/python:${PYTHON_VERSION}-slim-${DEBIAN_VERSION}${PYTHON_DIGEST}
ARG VERSION=0.1.0
ARG REVISION=
ARG PYTHON_VERSION
ARG DEBIAN_VERSION
LABEL org.opencontainers.image.title="flopwatch" \
      org.opencontainers.image.description="Per-node observability for AI infrastructure" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/python:${PYTHON_VERSION}-slim-${DEBIAN_VERSION}"
COPY --from=build /venv /venv
# Nothing is written at run time but below mounts: the root file system may be read-only.
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 9810
# Kubernetes has probes of its own. TLS first: where there is none the daemon says so at once, and
# nothing is counted as refused. Where clients must have a certificate health checks need
# `web.probes_without_certificate`. Without `site` a look costs a third.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["python", "-I", "-S", "-c", "import http.client as h, ssl\ndef ask(c):\n c.request('GET', '/-/healthy'); return c.getresponse().status\ntry: s = ask(h.HTTPSConnection('127.0.0.1', 9810, timeout=2, context=ssl._create_unverified_context()))\nexcept OSError: s = ask(h.HTTPConnection('127.0.0.1', 9810, timeout=2))\nraise SystemExit(s != 200)"]
ENTRYPOINT ["flopwatch"]
CMD ["run"]
