from fusehash.search import HammingIndex

i = HammingIndex.open("/tmp/x/a.fhi", warm=False)
print("after", len(i))
