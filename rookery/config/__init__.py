"""What a run is: frozen models (`models`), read from YAML and flags (`reading`), changed while it
runs (`live`), with defaults that were tuned (`tuned`). Everyone reads it; it knows only spaces.
"""
