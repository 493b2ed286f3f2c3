"""Rendered objects against the published types of Kubernetes and KEDA.

The types are Python classes, which are read as text and not imported: their fields, by the names that objects
have, with what each may be. Looked at is what a typing slip or a wrong indentation does: a field that is not
there, a list for a mapping, a number for a text, a word that is not one of those allowed, a required field that
is missing. Formats and limits of numbers are not.
"""

import ast
import pathlib

# Where each kind is, which also says what apiVersion it has.
MODULES = {
    ("v1", "ConfigMap"): "kubernetes/core/v1",
    ("v1", "Service"): "kubernetes/core/v1",
    ("v1", "ServiceAccount"): "kubernetes/core/v1",
    ("apps/v1", "Deployment"): "kubernetes/apps/v1",
    ("policy/v1", "PodDisruptionBudget"): "kubernetes/policy/v1",
    ("networking.k8s.io/v1", "NetworkPolicy"): "kubernetes/networking/v1",
    ("keda.sh/v1alpha1", "ScaledObject"): "keda/v1alpha1",
}
# Of the classes' own library, which is not there.
ELSEWHERE = {
    "ObjectMeta": {"name", "namespace", "labels", "annotations"},
    "LabelSelector": {"matchLabels", "matchExpressions"},
}
SCALARS = {"str": str, "int": int, "bool": bool, "float": (int, float)}


class Types:
    def __init__(self, folder):
        self.root = pathlib.Path(folder) / "cloudcoil/models"
        self.modules = {}

    def module(self, name):
        if name not in self.modules:
            tree = ast.parse((self.root / f"{name}.py").read_text())
            classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
            imported = {}
            for node in tree.body:
                if isinstance(node, ast.ImportFrom) and node.level == 2:
                    for alias in node.names:
                        imported[alias.asname or alias.name] = f"kubernetes/{node.module}/{alias.name}"
            self.modules[name] = classes, imported
        return self.modules[name]

    def fields(self, module, name):
        """The fields of a class by their names in objects: what each may be, and whether it is required."""
        found = {}
        for node in self.module(module)[0][name].body:
            if not isinstance(node, ast.AnnAssign) or node.target.id.startswith("_"):
                continue
            kind, alias, default = node.annotation, node.target.id, node.value
            if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Annotated":
                kind, field = kind.slice.elts[0], kind.slice.elts[1]
                for keyword in field.keywords:
                    if keyword.arg == "alias":
                        alias = keyword.value.value
            found[alias] = kind, default is None
        return found

    def problems(self, thing):
        """What is wrong with an object, a line each."""
        place = MODULES.get((thing.get("apiVersion"), thing.get("kind")))
        if place is None:
            return [f"{thing.get('apiVersion')} {thing.get('kind')} is not a kind that is expected"]
        return list(self.of_class(place, thing["kind"], thing, thing["kind"]))

    def of_class(self, module, name, value, path):
        if not isinstance(value, dict):
            yield f"{path} is no mapping: {value!r}"
            return
        fields = self.fields(module, name)
        for key, inner in value.items():
            if key not in fields:
                yield f"{path}.{key} is not a field of {name}"
            else:
                yield from self.of_kind(module, fields[key][0], inner, f"{path}.{key}")
        for key, (_, is_required) in fields.items():
            if is_required and key not in value:
                yield f"{path}.{key} is missing"

    def of_kind(self, module, kind, value, path):
        """Nothing if one of a field's alternatives fits; else what is wrong by the last that is not nothing."""
        wrong = []
        for one in alternatives(kind):
            found = list(self.of_one(module, one, value, path))
            if not found:
                return
            if ast.unparse(one) != "None":
                wrong = found
        yield from wrong

    def of_one(self, module, kind, value, path):
        text = ast.unparse(kind)
        if text == "None":
            if value is not None:
                yield f"{path}: {value!r} does not fit"
        elif isinstance(kind, ast.Subscript) and text.startswith("list["):
            if not isinstance(value, list):
                yield f"{path} is no list: {value!r}"
                return
            for index, item in enumerate(value):
                yield from self.of_kind(module, kind.slice, item, f"{path}[{index}]")
        elif isinstance(kind, ast.Subscript) and text.startswith("dict["):
            if not isinstance(value, dict):
                yield f"{path} is no mapping: {value!r}"
                return
            for key, item in value.items():
                yield from self.of_kind(module, kind.slice.elts[1], item, f"{path}.{key}")
        elif isinstance(kind, ast.Subscript) and text.startswith("Literal["):
            words = ast.literal_eval(f"[{text[len('Literal['):-1]}]")
            if value not in words:
                yield f"{path}: {value!r} is none of {words}"
        elif isinstance(kind, ast.Subscript) and text.startswith("Annotated["):
            yield from self.of_kind(module, kind.slice.elts[0], value, path)
        elif text in SCALARS:
            if not isinstance(value, SCALARS[text]) or (text != "bool" and isinstance(value, bool)):
                yield f"{path}: {value!r} is no {text}"
        elif text in self.module(module)[0]:
            node = self.module(module)[0][text]
            if any("RootModel" in ast.unparse(base) for base in node.bases):
                return
            yield from self.of_class(module, text, value, path)
        elif isinstance(kind, ast.Attribute) and ast.unparse(kind.value) in self.module(module)[1]:
            yield from self.of_kind(self.module(module)[1][kind.value.id], ast.Name(kind.attr), value, path)
        elif text in ELSEWHERE:
            for key in value:
                if key not in ELSEWHERE[text]:
                    yield f"{path}.{key} is not a field of {text}"
        elif text in ("IntOrString", "Quantity"):
            if not isinstance(value, (int, str)):
                yield f"{path}: {value!r} is no {text}"
        elif text.startswith("Any"):
            return
        else:
            yield f"{path}: its type {text} is not known here"


def alternatives(kind):
    if isinstance(kind, ast.BinOp):
        return alternatives(kind.left) + alternatives(kind.right)
    return [kind]
