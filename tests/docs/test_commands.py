"""Every command of the documentation is run, and every object in it is taken by the API server."""

import subprocess
from collections.abc import Iterator

import pytest
import yaml

from devcluster.fixtures import outer_cluster
from devcluster.light import LightCluster
from docs.pages import LANGUAGES, ROOT, SHELLS, Block, Page, read_pages
from docs.surroundings import Surroundings, script_of

pytestmark = pytest.mark.light

PAGES = read_pages()
BLOCKS = [block for page in PAGES.values() for block in page.blocks]
SERVED_GROUPS = (
    "llmservice.dev/",
    "apps/",
    "autoscaling/",
    "policy/",
    "networking.k8s.io/",
    "monitoring.coreos.com/",
    "v1",
)
"""Objects of these groups are given to the API server; those of others can't be."""


def shell_blocks(page: Page) -> list[Block]:
    return [block for block in page.blocks if block.language in SHELLS]


def installs(block: Block) -> bool:
    return block.mark != "not run" and "helm install llmservice-operator " in block.text


def installs_itself(page: Page) -> bool:
    return any(installs(block) for block in shell_blocks(page))


COMMAND_PAGES = {
    name: page for name, page in PAGES.items() if any(not each.mark for each in shell_blocks(page))
}
ORDER = sorted(
    COMMAND_PAGES, key=lambda name: (not installs_itself(PAGES[name]), "helm uninstall " in PAGES[name].text)
)
"""Pages that install the operator come first, those that remove it last: the others share one release."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    """An API server of these tests alone: commands of the documentation install, change and delete what they name."""
    if outer_cluster() is not None:
        pytest.skip("commands of the documentation would change the cluster that KUBECONFIG or CLUSTER names")
    cluster = LightCluster("test-docs", owned=True)
    cluster.remove_orphans()
    try:
        cluster.up()
        yield Surroundings(cluster, tmp_path_factory.mktemp("docs"))
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def installed(empty: Surroundings) -> Surroundings:
    """The operator's chart installed, and a service that serves."""
    empty.clean()
    empty.install()
    return empty


@pytest.mark.parametrize("name", ORDER)
def test_the_commands_of_a_page_work(name: str, request: pytest.FixtureRequest) -> None:
    page = PAGES[name]
    if installs_itself(page):
        surroundings: Surroundings = request.getfixturevalue("empty")
        surroundings.clean()
    else:
        surroundings = request.getfixturevalue("installed")

    for block in shell_blocks(page):
        if block.mark != "not run":
            done = surroundings.run(script_of(block))
            said = f"{block.place} ended with {done.returncode}\n{block.text}\n{done.stdout}"
            assert (done.returncode != 0) == (block.mark == "fails"), said
            assert block.words in " ".join(done.stdout.split()), said
        if installs(block):
            surroundings.add_service()


def test_a_command_that_is_not_run_says_why_and_is_well_formed() -> None:
    blocks = [block for block in BLOCKS if block.mark == "not run"]
    problems = {block.place: syntax_problem(block) for block in blocks}

    assert {place: problem for place, problem in problems.items() if problem} == {}
    assert [block.place for block in blocks if not block.words] == []


def syntax_problem(block: Block) -> str:
    return subprocess.run(
        ["bash", "-n", "-c", script_of(block)], check=False, capture_output=True, text=True
    ).stderr


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if each.language == "yaml"], ids=lambda block: block.place
)
def test_a_manifest_is_taken(block: Block, installed: Surroundings) -> None:
    documents = [each for each in yaml.safe_load_all(block.text) if each is not None]
    assert documents

    if block.mark == "values":
        done = installed.run(f"helm template x charts/llmservice-operator -f - <<'END'\n{block.text}END\n")
    elif block.mark != "another's" and all("apiVersion" in each for each in documents):
        assert all(each["apiVersion"].startswith(SERVED_GROUPS) for each in documents), "mark it as another's"
        command = "kubectl apply --dry-run=server --validate=strict -f -"
        done = installed.run(f"{command} <<'END'\n{block.text}END\n")
    else:
        return  # a part of an object, or another system's: it can be read, and no more can be said of it here

    assert done.returncode == 0, done.stdout


def test_kubectl_knows_the_commands_that_stand_in_a_sentence(installed: Surroundings) -> None:
    commands = {
        code: name
        for name, page in PAGES.items()
        for code in page.inline_code
        if code.startswith("kubectl ") and len(code.split()) > 2
    }
    read = {f"{name}: {command}": installed.read(command) for command, name in commands.items()}

    assert {place: done.stdout for place, done in read.items() if done.returncode} == {}


def test_every_fence_names_a_language_that_is_looked_at() -> None:
    assert [f"{block.place}: {block.language}" for block in BLOCKS if block.language not in LANGUAGES] == []


def test_the_pages_are_those_of_the_project() -> None:
    assert {"README.md", "CONTRIBUTING.md", "operator/docs/operating.md"} <= PAGES.keys()
    assert PAGES["README.md"].path == ROOT / "README.md"
