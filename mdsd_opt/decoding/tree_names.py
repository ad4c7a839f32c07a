"""Public names of the room of trees, which decoding passes on."""

from mdsd_opt.trees import *  # noqa: F403
