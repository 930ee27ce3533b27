"""`python -m sbtrpo` is `sbtrpo`."""

from sbtrpo.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
