"""Settings of what people hand in as files over the console."""

from project.environment import number

IMPORT_MOST_BYTES = int(number("IMPORT_MOST_MB", 100) * 1024 * 1024)  # of all files of one import together
IMPORT_KEEP_DAYS = number("IMPORT_KEEP_DAYS", 7)  # that a file which is not imported yet is kept
# A form with more bytes of files than may be imported is read to its end and keeps none of them: the page can say why.
FILE_UPLOAD_HANDLERS = [
    "agents.imports.uploads.LimitedUploads",
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "django.core.files.uploadhandler.TemporaryFileUploadHandler",
]
DATA_UPLOAD_MAX_NUMBER_FILES = 500  # personas of one import
