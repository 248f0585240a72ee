"""`tidelog demo`, for real."""

import json

from click.testing import CliRunner

from tidelog.apps.cli.main import cli
from tidelog.apps.demo import Promise, _compare, _Writer


def test_nothing_is_lost_when_the_leader_is_killed() -> None:
    result = CliRunner().invoke(cli, ["demo", "--format", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["holds"] is True
    assert found["lost"] == []
    assert found["acknowledged"] == found["sent"] == found["in_log"] > 100
    assert found["successor"] != found["killed"]


def test_what_is_lost_doubled_or_astray_is_seen() -> None:
    writer = _Writer("localhost:1")
    writer.sent = 4
    writer.promises = [Promise(number, number, 0.0) for number in range(4)]
    whole = _compare(writer, [0, 1, 2, 3], 0.1, 1, 2, 0.1)
    assert whole.holds
    cut = _compare(writer, [0, 1], 0.1, 1, 2, 0.1)
    assert (cut.lost, cut.holds) == ([2, 3], False)
    astray = _compare(writer, [0, 2, 1, 1, 3], 0.1, 1, 2, 0.1)
    assert (astray.lost, astray.repeated, astray.out_of_order) == ([1, 2, 3], 1, 1)
