"""A server that is long busy with its imports."""

import time

time.sleep(60)
