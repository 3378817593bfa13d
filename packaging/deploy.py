#!/usr/bin/env python3
"""The objects of packaging/k8s as kustomize's base and overlays and as a Helm chart, in deploy.

    deploy.py            writes the files that are copies
    deploy.py --check    only compares; says what differs
    deploy.py --helm PROGRAM
                         compares what Helm itself makes of the chart with what --render prints
    deploy.py --render [KEY=VALUE …]
                         prints what the chart makes of values.yaml and these values, its CRD first

The chart uses a small part of Helm's templates, which this file renders without Helm: lines
`{{- if .Values.KEY }}` and `{{- end }}`, `{{ .Values.KEY | indent 4 }}`, and `{{ .Values.KEY }}` within a line. Anything
else is an error here.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
SOURCE = REPO / "packaging" / "k8s"
KUSTOMIZE = REPO / "deploy" / "kustomize"
CHART = REPO / "deploy" / "helm" / "daemonlet"
CRD = "nodedaemons.yaml"
BASE = [CRD, "rbac.yaml", "admission-policies.yaml", "coordinator-rbac.yaml", "coordinator-deployment.yaml"]
# What is chosen: the file, kustomize's overlay, the chart's value.
CHOSEN = [("rbac-wide.yaml", "wide-rbac", "wideRbac"), ("approver-rbac.yaml", "approver", "approver"),
          ("rbac-dry-run.yaml", "dry-run-admission", "dryRunAdmission"), ("startup-taint.yaml", "startup-taint", "startupTaint"),
          ("node-conditions.yaml", "node-conditions", "nodeConditions")]
# What the chart's values change: the file, its text, the chart's.
VALUES = [
    ("coordinator-deployment.yaml", "image: daemonlet:0.1.0\n", "image: {{ .Values.image }}\n"),
    ("coordinator-deployment.yaml", "replicas: 2 #", "replicas: {{ .Values.replicas }} #"),
    ("coordinator-deployment.yaml", 'value: "6443"\n', 'value: "{{ .Values.apiServerPort }}"\n'),
    ("coordinator-deployment.yaml", "reads /metrics there\n",
     "reads /metrics there\n{{- if .Values.approver }}\n  approve-nodes.toml: |\n    [coordinator]\n    approve-nodes = true\n{{- end }}\n"
     "{{- if .Values.configuration }}\n  local.toml: |\n{{ .Values.configuration | indent 4 }}\n{{- end }}\n"),
]
_IF = re.compile(r"\{\{- if \.Values\.(\w+) \}\}")
_INDENTED = re.compile(r"\{\{ \.Values\.(\w+) \| indent 4 \}\}")
_VALUE = re.compile(r"\{\{ \.Values\.(\w+) \}\}")


def documents(text):
    """The documents of a file, each with its comments."""
    return text.split("\n---\n")


def bare(document):
    """A document without lines of comments."""
    return [line for line in document.splitlines() if line and not line.lstrip().startswith("#")]


def sources():
    """Name and text of each file. An object that an earlier file of the base has is left out of a later one."""
    names = [*BASE, *(file for file, _, _ in CHOSEN)]
    missing = {file.name for file in SOURCE.glob("*.yaml")} ^ set(names)
    if missing:
        raise SystemExit(f"packaging/k8s and packaging/deploy.py do not name the same files: {', '.join(sorted(missing))}")
    seen, texts = [], {}
    for name in names:
        kept = [one for one in documents((SOURCE / name).read_text(encoding="utf-8").rstrip("\n")) if bare(one) not in seen]
        seen += [bare(one) for one in kept]
        texts[name] = "\n---\n".join(kept) + "\n"
    return texts


def template(name, text):
    """A file as a template of the chart."""
    for file, old, new in VALUES:
        if file == name:
            if text.count(old) != 1:
                raise SystemExit(f"packaging/k8s/{name} does not have {old!r} once: mend VALUES in packaging/deploy.py")
            text = text.replace(old, new)
    for file, _, value in CHOSEN:
        if file == name:
            text = f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"
    return text


def copies():
    """Each file that is written, with its text."""
    overlays = {file: KUSTOMIZE / "overlays" / overlay for file, overlay, _ in CHOSEN}
    found = {}
    for name, text in sources().items():
        note = f"# Written by packaging/deploy.py from packaging/k8s/{name}.\n"
        found[overlays.get(name, KUSTOMIZE / "base") / name] = note + text
        found[CHART / ("crds" if name == CRD else "templates") / name] = note + (text if name == CRD else template(name, text))
    return found


def render(values):
    """What the chart makes of `values`, which outrank those of values.yaml."""
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    known = dict(line.split(": ", 1) for line in lines if not line.startswith("#"))
    if set(values) - set(known):
        raise SystemExit(f"values.yaml does not have {', '.join(sorted(set(values) - set(known)))}")
    known |= values
    out = [(CHART / "crds" / CRD).read_text(encoding="utf-8")]
    for file in (CHART / "templates" / name for name in [*BASE[1:], *(file for file, _, _ in CHOSEN)]):
        kept, taken = [], []
        for line in file.read_text(encoding="utf-8").splitlines():
            chosen = _IF.fullmatch(line)
            if chosen:
                taken.append(known[chosen.group(1)] not in ("false", '""', ""))
            elif line == "{{- end }}":
                taken.pop()
            elif all(taken) and (indented := _INDENTED.fullmatch(line)):
                kept += [f"    {one}" for one in known[indented.group(1)].splitlines()]
            elif all(taken):
                kept.append(_VALUE.sub(lambda found: known[found.group(1)], line))
        text = "\n".join(kept) + "\n"
        if "{{" in text or taken:
            raise SystemExit(f"{file}: a template that packaging/deploy.py does not know")
        if bare(text):
            out.append(text)
    return "---\n".join(out)


def disagreements():
    """What does not fit in the files that are written by hand."""
    version = re.search(r'(?m)^version = "(.*)"$', (REPO / "Cargo.toml").read_text(encoding="utf-8")).group(1)
    chart = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    if re.findall(r"(?m)^(?:version|appVersion): (.*)$", chart) != [version] * 2:
        yield f"{CHART / 'Chart.yaml'}: the version is {version}"
    made = render({"wideRbac": "true", "dryRunAdmission": "true", "startupTaint": "true", "nodeConditions": "true"})
    wanted = "\n---\n".join(text.rstrip("\n") for name, text in sources().items() if name != "approver-rbac.yaml")
    if [bare(one) for one in documents(made)] != [bare(one) for one in documents(wanted)]:
        yield f"{CHART / 'values.yaml'}: what the chart makes of it is not what packaging/k8s has"


def of_helm(program):
    """What Helm makes otherwise than this file, by its values and by others."""
    every = {value: "true" for _, _, value in CHOSEN} | {"image": "example.org/d:1", "configuration": '[policy]\nnamespaces = ["a", "b"]\n'}
    known = lambda text: sorted(tuple(bare(one)) for one in re.split(r"(?m)^---$", text) if bare(one))
    for values in ({}, every):
        with tempfile.TemporaryDirectory() as folder:
            words = [program, "template", "daemonlet", CHART, "--include-crds", "--kube-version", "1.36.0"]
            for key, value in values.items():
                file = Path(folder) / key
                file.write_text(value, encoding="utf-8")
                words += ["--set-file", f"{key}={file}"] if key == "configuration" else ["--set", f"{key}={value}"]
            made = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
        if known(made) != known(render(values)):
            yield f"{CHART}: Helm makes something else of it with {values}"


def main():
    """The command; with --check the exit status is 1 when a file is not what it should be."""
    if sys.argv[1:2] == ["--helm"]:
        bad = list(of_helm(sys.argv[2]))
        print("".join(f"{line}\n" for line in bad), end="")
        return int(bool(bad))
    if sys.argv[1:2] == ["--render"]:
        print(render(dict(word.split("=", 1) for word in sys.argv[2:])), end="")
        return 0
    found, bad = copies(), 0
    for path, text in found.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if sys.argv[1:] == ["--check"]:
            print(f"{path.relative_to(REPO)} is not what packaging/k8s says: run packaging/deploy.py")
            bad = 1
        else:
            path.write_text(text, encoding="utf-8")
    for path in {*KUSTOMIZE.rglob("*.yaml"), *(CHART / "templates").iterdir(), *(CHART / "crds").iterdir()} - set(found):
        if path.name != "kustomization.yaml":
            print(f"{path.relative_to(REPO)} comes from nothing in packaging/k8s")
            bad = 1
    for text in disagreements():
        print(text)
        bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
