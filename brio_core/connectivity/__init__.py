"""From a scan to a graph: connectivity, its re-estimation within the scan, block length."""
