"""One loop for every recipe of the paper."""
