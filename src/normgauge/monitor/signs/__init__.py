"""Signs of trouble, by subject; plain numbers in, alarms out.

Causes name what to change. Symptoms name where it shows, and are left unsaid while a cause is known.
"""
