"""Files that people upload in the console.

`recognise` tells transcripts from personas. `jobs` previews, imports and undoes transcripts, `questions` asks what one does not say for
certain, `uploads` stores the files till then. `personas` previews and imports personas.
"""

from agents.transcripts.imports.jobs import work_one

__all__ = ["work_one"]
