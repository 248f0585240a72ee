"""Which partition of `__consumer_offsets` keeps a group: whoever leads it coordinates the group."""

OFFSETS_TOPIC = "__consumer_offsets"
_SIGN = 0x7FFF_FFFF


def partition_for(group_id: str, partitions: int) -> int:
    """As every Kafka broker and tool computes it: by Java's hash of the name, without its sign."""
    number = 0
    utf16 = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(utf16), 2):
        number = number * 31 + (utf16[at] << 8 | utf16[at + 1]) & 0xFFFF_FFFF
    return (number & _SIGN) % partitions
