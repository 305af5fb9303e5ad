"""Print the number of attempts in each class."""

from tests.attacks.test_count import count_attempts

for name, count in count_attempts().items():
    print(f"{count:4}  {name}")
