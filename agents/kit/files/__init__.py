"""Read files of strangers: `source` gives their text by lines, `json_input` their JSON value by value, `times` what their times mean.

What cannot be read raises `FileError`, which names the file, the line and the reason.
"""
