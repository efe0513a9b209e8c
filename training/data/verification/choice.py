"""Which files of a data set to read."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from training.data.verification.damage import ALTERED, Damages
from training.data.verification.listing import ShardListing

SURE = 0.95


def found_share(sample_files: int) -> float:
    """The share of damaged files of which a random sample of that size holds one at least, SURE of the time.

    With the share d, a sample of n misses all of them with probability (1 - d)^n.
    """
    return float(1 - (1 - SURE) ** (1 / sample_files))


def choose(
    listings: Sequence[ShardListing], sample_files: int | None, seed: int, damages: Damages
) -> dict[str, Sequence[int]]:
    """The files to read of each shard, by their places in its record: `sample_files` of all drawn with `seed`, None for all.

    With a sample go all files of labels but masks, and those of another size than recorded; where these are more than
    the sample, as many of them, and the others are only counted as damage.
    """
    if sample_files is None:
        return {listing.key: _there(range(listing.files), listing) for listing in listings}
    chosen = {listing.key: set(listing.label_files) for listing in listings}
    draw = random.Random(seed)
    ends = list(accumulate(listing.files for listing in listings))
    total = ends[-1] if ends else 0
    for number in draw.sample(range(total), min(sample_files, total)):
        place = bisect_right(ends, number)
        chosen[listings[place].key].add(number - (ends[place - 1] if place else 0))
    resized = [(listing.key, place) for listing in listings for place in listing.resized]
    draw.shuffle(resized)
    for key, place in resized[:sample_files]:
        chosen[key].add(place)
    for key, place in resized[sample_files:]:
        if place not in chosen[key]:
            damages.count(ALTERED, key, 1)
    return {listing.key: _there(chosen[listing.key], listing) for listing in listings}


def _there(places: range | set[int], listing: ShardListing) -> Sequence[int]:
    if isinstance(places, range) and not listing.absent:
        return places
    absent = set(listing.absent)
    return sorted(place for place in places if place not in absent)
