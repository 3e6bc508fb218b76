"""The tasks that come with p2pnode, one file each, and how any task is found."""
