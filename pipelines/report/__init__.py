"""The report of a replay: one HTML file that needs nothing but a browser.

Everything is read from run folders, so a report can be written again at any time, also for a run that failed.
The file makes no network request (its Content-Security-Policy forbids every one), and the same run folder always
gives the same bytes.
"""
