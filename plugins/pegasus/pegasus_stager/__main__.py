"""`python -m pegasus_stager` is `stager-transfer` where no script was installed. May know main. One rule: it decides nothing."""

import sys

from pegasus_stager.main import main

sys.exit(main())
