import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "idml"
OPTIONAL = ("pytorch_metric_learning", "beartype", "hypothesis", "pytest", "sklearn", "matplotlib")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_idml_imports_nothing_heavy_or_optional():
    loaded = run("import sys, idml, idml.distances, idml.losses, idml.models.heads; print(*sys.modules)").split()
    assert "idml" in loaded
    assert not {name.split(".")[0] for name in loaded} & set(OPTIONAL)


def test_importing_idml_takes_little_longer_than_importing_torch():
    """Counted in modules, which do not depend on how busy the machine is: `import torch` loads some 1,800."""
    own = run("import sys, torch; before = set(sys.modules); import idml; print(len(set(sys.modules) - before))")
    assert int(own) < 120


def test_shapes_are_not_checked_outside_tests():
    """A wrong shape reaches our own message, not a type checker's."""
    code = "import torch, idml\ntry: idml.Embedding(torch.ones(3))\nexcept ValueError as error: print(error)"
    assert run(code).startswith("semantic has shape (3,)")


def test_without_pytorch_metric_learning_the_message_names_the_extra():
    code = (
        "import sys; sys.modules['pytorch_metric_learning'] = None\n"
        "try: import idml.interop.pytorch_metric_learning\nexcept ImportError as error: print(error)"
    )
    assert "pip install 'idml[pml]'" in run(code)


def python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_says_what_it_is_for_and_stays_short(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= 350


@pytest.mark.parametrize("path", sorted((SOURCE / "losses").glob("*.py")), ids=lambda path: path.stem)
def test_a_loss_is_at_most_sixty_lines(path):
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60
