# The broker in a container, for tests. From the top of the repository:
#
#   docker build -f samples/deploy/broker.Dockerfile -t sbpair-broker .
#   docker run --read-only --cap-drop ALL --security-opt no-new-privileges \
#     -v sbpair-broker:/data -p 127.0.0.1:5672:5672 -p 127.0.0.1:5673:5673 \
#     -p 127.0.0.1:8080:8080 sbpair-broker
#
# Prints the connection strings of contoso and contoso-dr, for clients on this machine. Keys and messages are kept in
# the volume. The web page is on port 8080, with the token that is printed. Arguments after the name of the image replace those of CMD below.

FROM python:3.12.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY sbpair ./sbpair
RUN python -m venv /opt/sbpair && /opt/sbpair/bin/pip install --no-cache-dir '.[cli]'
RUN /opt/sbpair/bin/python -m compileall -q /opt/sbpair/lib

FROM python:3.12.11-slim-bookworm
COPY --from=build /opt/sbpair /opt/sbpair
RUN install -d -o 65532 -g 65532 -m 700 /data
# The broker writes its certificates to TMPDIR, which with --read-only must be in the volume.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 TMPDIR=/data
USER 65532:65532
VOLUME /data
EXPOSE 5672 5673 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
  CMD ["/opt/sbpair/bin/python", "-c", "import socket; [socket.create_connection(('127.0.0.1', port), 2).close() for port in (5672, 5673)]"]
ENTRYPOINT ["/opt/sbpair/bin/sbpair"]
CMD ["broker", "--host", "0.0.0.0", "--namespace", "contoso:5672", "--namespace", "contoso-dr:5673", "--data", "/data", "--page", "0.0.0.0:8080"]
