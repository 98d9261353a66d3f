"""Documents that are made from code are up to date, and the published schema says what the model says."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parent.parent
CAMPAIGNS = sorted((ROOT / "campaigns").glob("*.yaml"))


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_documents_are_up_to_date(writer: ModuleType) -> None:
    for name, text in writer.generated().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, "run: make docs"


@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: path.stem)
def test_campaigns_keep_the_published_schema(path: Path) -> None:
    schema = json.loads((ROOT / "docs" / "campaign.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), schema)


def test_the_published_schema_refuses_what_the_model_refuses() -> None:
    schema = json.loads((ROOT / "docs" / "campaign.schema.json").read_text(encoding="utf-8"))
    campaign = yaml.safe_load((ROOT / "campaigns" / "demo.yaml").read_text(encoding="utf-8"))
    for wrong in ({"repetitons": 3}, {"repetitions": 0}, {"topologies": {}}, {"campaign": "$(reboot)"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(campaign | wrong, schema)


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


def test_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^\s*make ([a-z-]+)", text, flags=re.MULTILINE):
        assert f"\n{target}:" in makefile
    for path in re.findall(r"\b(?:campaigns|benchmarks|docs|queries)/[\w./-]+\.\w+", text):
        assert (ROOT / path).exists(), path
