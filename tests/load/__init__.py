"""An open-loop load on engines: requests are sent at their times, however slow the answers are."""
