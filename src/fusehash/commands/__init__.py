"""The commands of `fusehash`, one file each; everything heavy is imported when a command runs."""
