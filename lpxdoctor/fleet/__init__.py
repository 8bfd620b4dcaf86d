"""Many hosts: an inventory in, the evidence of every one of its hosts, or why there is none, out."""

from lpxdoctor.fleet.gather import FORKS, Row, answers, collect
from lpxdoctor.fleet.inventories import FleetHost, hosts
from lpxdoctor.fleet.refusals import NoAnswer

__all__ = ("FORKS", "FleetHost", "NoAnswer", "Row", "answers", "collect", "hosts")
