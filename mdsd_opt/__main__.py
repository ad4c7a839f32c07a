"""`python -m mdsd_opt`: the command line."""

from mdsd_opt.cli import main

main()
