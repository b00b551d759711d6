"""The manifests are valid, restart nothing in an outage, and fit each other and the command."""

from __future__ import annotations

import shutil
import subprocess
from datetime import timedelta

import kubernetes_validate
import pytest
import yaml

from sbpair.pair.observation.status import PROBE_TIMEOUT

from .reading import DEPLOY, RULES, STRING, manifest, parsed, syphon_container

KUBERNETES = DEPLOY / "kubernetes"
VERSION = "1.31.0"
OF_OPERATORS = {"PodMonitor", "PrometheusRule", "Kustomization"}
DEPLOYMENTS = ("base/deployment.yaml", "workload-identity/deployment.yaml")


def words_of(deployment: str, directory: object) -> list[str]:
    """The arguments, as the kubelet passes them."""
    return [
        word.replace("/run/secrets/sbpair/", f"{directory}/").replace("$(POD_IP)", "10.0.0.7")
        for word in syphon_container(deployment)["args"]
    ]


@pytest.mark.spec("R-190")
@pytest.mark.parametrize("path", sorted(KUBERNETES.glob("base/*.yaml")), ids=lambda path: path.stem)
def test_every_manifest_is_schema_valid(path):
    document = manifest(str(path.relative_to(KUBERNETES)))
    if document["kind"] not in OF_OPERATORS:
        kubernetes_validate.validate(document, VERSION, strict=True)
    assert document["kind"] != "Secret"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("variant", ["base", "workload-identity"])
def test_kustomize_builds_each_variant(variant):
    done = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES / variant)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    built = {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}
    for kind, document in built.items():
        if kind not in OF_OPERATORS:
            kubernetes_validate.validate(document, VERSION, strict=True)
    pod = built["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    has_keys = variant == "base"
    assert bool(pod.get("volumes")) is has_keys
    assert bool(container.get("volumeMounts")) is has_keys
    assert container["livenessProbe"]["httpGet"]["path"] == "/live"
    assert pod.get("serviceAccountName") == (None if has_keys else "sbpair-syphon")


@pytest.mark.spec("R-61", "R-190")
def test_only_a_hanging_process_is_restarted_and_probes_outlast_the_answer():
    container = syphon_container()
    live, ready = container["livenessProbe"], container["readinessProbe"]
    assert live["httpGet"]["path"] == "/live"
    assert ready["httpGet"]["path"] == "/ready"
    assert live["timeoutSeconds"] > PROBE_TIMEOUT  # else a blocked loop could not say so
    assert live["failureThreshold"] * live["periodSeconds"] >= 60
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {live["httpGet"]["port"], ready["httpGet"]["port"]} <= ports.keys()
    words = container["args"]
    assert int(words[words.index("--status-port") + 1]) == ports["status"]


def test_the_container_arguments_parse_with_the_mounted_keys(credentials):
    given = parsed(words_of(DEPLOYMENTS[0], credentials))
    assert given["primary"].connection_string == STRING.format("contoso")
    assert given["status_host"] == "10.0.0.7"
    (mount,) = syphon_container()["volumeMounts"]
    assert mount["readOnly"]
    files = [word for word in syphon_container()["args"] if word.startswith("file:")]
    assert all(word.startswith(f"file:{mount['mountPath']}/") for word in files)


def test_workload_identity_uses_namespace_names_and_no_key(credentials):
    given = parsed(words_of(DEPLOYMENTS[1], credentials))
    assert given["primary"].connection_string is None
    assert given["secondary"].connection_string is None
    keyed, bare = (syphon_container(deployment)["args"] for deployment in DEPLOYMENTS)
    assert [word for word in keyed if word.startswith("--") or word == "syphon"] == [
        word for word in bare if word.startswith("--") or word == "syphon"
    ]


@pytest.mark.spec("R-190")
def test_the_pod_runs_without_root_rights_or_a_writable_file_system():
    pod = manifest(DEPLOYMENTS[0])["spec"]["template"]["spec"]
    context = syphon_container()["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert context == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    words = syphon_container()["args"]
    stop = timedelta(seconds=int(words[words.index("--stop-timeout") + 1].removesuffix("s")))
    assert pod["terminationGracePeriodSeconds"] > stop.total_seconds() + 5


def test_every_selector_matches_its_pods_and_one_of_two_survives_a_drain():
    deployment = manifest(DEPLOYMENTS[0])
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = [
        deployment["spec"]["selector"],
        manifest("base/pod-disruption-budget.yaml")["spec"]["selector"],
        manifest("base/network-policy.yaml")["spec"]["podSelector"],
        manifest("base/pod-monitor.yaml")["spec"]["selector"],
    ]
    assert all(selector["matchLabels"].items() <= labels.items() for selector in selectors)
    assert (
        manifest("base/pod-disruption-budget.yaml")["spec"]["minAvailable"] < deployment["spec"]["replicas"]
    )
    (endpoint,) = manifest("base/pod-monitor.yaml")["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("status", "/metrics")


def test_the_rules_of_the_operator_equal_those_of_the_plain_file():
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    assert manifest("base/prometheus-rule.yaml")["spec"]["groups"] == groups, (
        "copy the groups of prometheus-alerts.yml into kubernetes/base/prometheus-rule.yaml"
    )
