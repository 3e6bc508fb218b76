"""Who may ask the page: websites elsewhere may not, by whatever name they reach it."""

from __future__ import annotations

import pytest

from p2pnode.watch.dashboard.guard import HEADERS, known_hosts, refusal

HOSTS = known_hosts("127.0.0.1", 8080)
OWN = {"Host": "127.0.0.1:8080"}
TOKEN = "secret"


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "LOCALHOST:8080"])
def test_loopback_is_known_by_its_names(host: str) -> None:
    assert refusal("GET", {"Host": host}, HOSTS, TOKEN) == ""


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:8080", "127.0.0.1", "localhost:8081"])
def test_a_name_that_is_not_ours_is_refused(host: str) -> None:
    assert "not known as" in refusal("GET", {"Host": host}, HOSTS, TOKEN)


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:9999", "null"])
def test_another_sites_script_gets_nothing(origin: str) -> None:
    for method in ("GET", "POST"):
        headers = {**OWN, "Origin": origin, "Authorization": f"Bearer {TOKEN}"}
        assert "another site" in refusal(method, headers, HOSTS, TOKEN)


def test_cross_site_reads_without_an_origin_are_refused_and_links_followed_are_not() -> None:
    assert "another site" in refusal("GET", {**OWN, "Sec-Fetch-Site": "cross-site"}, HOSTS, TOKEN)
    followed = {**OWN, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert refusal("GET", followed, HOSTS, TOKEN) == ""


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", "secret", "Basic secret", "Bearer sécret"])
def test_steering_needs_the_token(given: str) -> None:
    assert "token" in refusal("POST", {**OWN, "Authorization": given}, HOSTS, TOKEN)
    assert refusal("POST", {**OWN, "Authorization": f"Bearer {TOKEN}"}, HOSTS, TOKEN) == ""


def test_other_hosts() -> None:
    for host in ("192.168.1.5:80", "192.168.1.5"):
        assert refusal("GET", {"Host": host}, known_hosts("192.168.1.5", 80), TOKEN) == ""
    assert refusal("GET", {"Host": "[fe80::1]:9"}, known_hosts("fe80::1", 9), TOKEN) == ""
    for host in ("localhost:9", "192.168.1.5:80", "192.168.1.6:9"):
        assert "not known as" in refusal("GET", {"Host": host}, known_hosts("192.168.1.5", 9), TOKEN)


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::"])
def test_a_page_on_the_network_is_known_by_every_address_and_by_no_strange_name(everywhere: str) -> None:
    hosts = known_hosts(everywhere, 9)
    for host in ("localhost:9", "192.168.1.5:9", "[fe80::1]:9"):
        assert refusal("GET", {"Host": host, "Origin": f"http://{host}"}, hosts, TOKEN) == ""
    for host in ("evil.example:9", "192.168.1.5", "192.168.1.5:8", "[fe80::1]", ""):
        assert "not known as" in refusal("GET", {"Host": host}, hosts, TOKEN)
    neighbour = {"Host": "192.168.1.5:9", "Origin": "http://192.168.1.66:9"}
    assert "another site" in refusal("GET", neighbour, hosts, TOKEN), "an address is no proof of being this page"


def test_the_policy_allows_only_what_the_node_itself_serves() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
