# The syphon in a container. From the top of the repository:
#
#   docker build -f samples/deploy/syphon.Dockerfile -t sbpair-syphon .
#   docker run --read-only --cap-drop ALL --security-opt no-new-privileges --stop-timeout 30 \
#     -v /etc/sbpair/primary:/run/secrets/sbpair_primary:ro \
#     -v /etc/sbpair/secondary:/run/secrets/sbpair_secondary:ro sbpair-syphon
#
# Each file holds a connection string and must be readable for user 65532. The status pages listen on loopback;
# add `--status-host 0.0.0.0` after the arguments below where probes and scrapes come from another address.

FROM python:3.12.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY sbpair ./sbpair
RUN python -m venv /opt/sbpair && /opt/sbpair/bin/pip install --no-cache-dir '.[cli,identity]'
RUN /opt/sbpair/bin/python -m compileall -q /opt/sbpair/lib

FROM python:3.12.11-slim-bookworm
COPY --from=build /opt/sbpair /opt/sbpair
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
STOPSIGNAL SIGTERM
# /live, not /ready or /health: those may fail during an outage of the primary, which the syphon is to survive.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
  CMD ["/opt/sbpair/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9464/live', timeout=3)"]
ENTRYPOINT ["/opt/sbpair/bin/sbpair"]
CMD ["syphon", "--primary", "file:/run/secrets/sbpair_primary", "--secondary", "file:/run/secrets/sbpair_secondary", "--status-port", "9464"]
