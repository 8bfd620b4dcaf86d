"""What another Python needs: markers are judged by it, and not by the Python that runs."""

from lpxdoctor.airgap.target import named
from lpxdoctor.airgap.wheels import needed, options_for

REQUIRES = (
    "always>=1",
    "old-python<3; python_version < '3.11'",
    "new-python; python_version >= '3.12'",
    "windows; sys_platform == 'win32'",
    "for-the-extra; extra == 'hub'",
    "pypy; platform_python_implementation == 'PyPy'",
)


def test_markers_are_those_of_the_targets_python() -> None:
    assert needed(REQUIRES, named("ubuntu2204")) == ["always>=1", "old-python<3"]
    assert needed(REQUIRES, named("debian12")) == ["always>=1"]
    assert needed(REQUIRES, named("debian13")) == ["always>=1", "new-python"]


def test_an_extra_counts_where_it_is_asked_for() -> None:
    assert needed(REQUIRES, named("debian12"), frozenset({"hub"})) == ["always>=1", "for-the-extra"]


def test_wheels_for_a_newer_c_library_are_not_taken() -> None:
    options = options_for(named("ubuntu2204"))
    assert "manylinux_2_35_x86_64" in options
    assert "manylinux2014_x86_64" in options
    assert "manylinux_2_36_x86_64" not in options
    assert options[options.index("--python-version") + 1] == "3.10"
