"""Under tests, shapes in annotations are checked at run time, before anything of idml is imported."""

import jaxtyping
import pytest
from hypothesis import settings

jaxtyping.install_import_hook("idml", "typecheck.check")
settings.register_profile("idml", deadline=None, max_examples=40, print_blob=True)
settings.load_profile("idml")


@pytest.fixture
def as_installed():
    """Without run-time shape checks, as users have it: for tests of what they are told."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
