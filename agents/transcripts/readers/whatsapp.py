"""What WhatsApp itself writes into an exported chat: placeholders of media, deleted and edited messages, the notice of encryption.

On iOS such a text has a left-to-right mark before it, in every language. On Android it has none: media are known by their form
(``<…>``, ``IMG-20260131-WA0001.jpg (…)``), the rest by its words in the eleven languages below; in others it is read as speech.
Read: https://github.com/Dlurak/Whis (src/lib/constants/whatsapp.ts) and other public parsers that list the wordings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MARK = "\u200e"
LONGEST_NOTE = 80  # characters
_DELETED = re.compile(
    r"(?:this message was deleted|you deleted this message|message deleted by admin .{0,60}"
    r"|diese nachricht wurde gelöscht|du hast diese nachricht gelöscht"
    r"|(?:se eliminó este|este) mensaje(?: fue eliminado)?|eliminaste este mensaje|has eliminado este mensaje"
    r"|ce message a été supprimé|vous avez supprimé ce message|tu as supprimé ce message"
    r"|(?:esta |essa )?mensagem (?:foi )?(?:apagada|eliminada)|(?:você )?apag(?:ou|aste) (?:esta|essa) mensagem|eliminou esta mensagem"
    r"|questo messaggio è stato eliminato|hai eliminato questo messaggio"
    r"|dit bericht (?:is|werd) verwijderd|(?:u hebt|je hebt|jij hebt) dit bericht verwijderd"
    r"|(?:данное |это )?сообщение удалено|вы удалили (?:данное|это) сообщение"
    r"|ta wiadomość została usunięta|(?:usunięto|usunąłeś|usunęłaś|usunąłeś\(-ęłaś\)) tę wiadomość"
    r"|bu mesaj silindi|bu mesajı sildiniz|pesan ini telah dihapus|anda (?:telah )?menghapus pesan ini)\.?",
    re.IGNORECASE,
)
_EDITED = re.compile(
    r"\u200e?<(?:this message was edited|diese nachricht wurde bearbeitet|se editó este mensaje|ce message a été modifié"
    r"|(?:esta )?mensagem (?:foi )?editada|(?:questo )?messaggio (?:è stato )?modificato|dit bericht is bewerkt|сообщение изменено"
    r"|данное сообщение изменено|ta wiadomość została edytowana|bu mesaj düzenlendi|pesan ini diedit)\.?>\Z",
    re.IGNORECASE,
)
_ENCRYPTED = re.compile(
    r"(?:messages (?:and calls are|to this (?:chat|group)|you send to this)|nachrichten (?:und anrufe|in diesem chat|an diese gruppe)"
    r"|los mensajes y (?:las )?llamadas|les messages et (?:les )?appels|as mensagens e (?:as )?(?:chamadas|ligações)"
    r"|i messaggi e le chiamate|berichten en (?:oproepen|gesprekken)|сообщения и звонки|wiadomości i połączenia|mesajlar ve aramalar"
    r"|pesan dan panggilan)\b.{0,60}"
    r"(?:encrypt|verschlüssel|cifrad|chiffré|criptogra|encripta|crittogra|versleutel|шифрован|szyfrowan|şifrel|terenkripsi)",
    re.IGNORECASE,
)
_OMITTED = re.compile(
    r"(?:null|live location shared|(?:image|video|video note|audio|gif|sticker|document|contact card|media"
    r"|view once (?:voice )?message) omitted"
    r"|(?:bild|video|videonotiz|audio|gif|sticker|dokument|kontaktkarte) weggelassen"
    r"|(?:imagen|video|audio|gif|sticker|documento|tarjeta de contacto) omitid[oa]"
    r"|(?:image|vidéo|audio|gif|sticker|document|fiche contact) (?:omise?|absente?)"
    r"|(?:imagem|vídeo|áudio|gif|figurinha|documento) (?:ocult|omitid)[oa]"
    r"|(?:immagine|video|audio|gif|sticker|documento) omess[oa]|(?:afbeelding|video|audio|gif|sticker|document) weggelaten)\.?",
    re.IGNORECASE,
)
_BRACKETED = re.compile(
    r"<(?=[^<>]*(?:\s|[^\x00-\x7f]))[^<>@/]{4,60}>"
)  # more than one word, or not in Latin letters: no <html>
_ATTACHED = re.compile(
    r"(?:(?:IMG|VID|AUD|PTT|STK|DOC)-\d{8}-WA\d+\.\w{2,5}(?: \([^()]{2,40}\))?|.{1,200}\.\w{2,5} "
    r"\((?:file attached|datei angehängt|archivo adjunto|fichier joint|arquivo anexado|ficheiro anexado|file allegato|bestand bijgevoegd"
    r"|файл добавлен|załączono plik|dosya ekli|file terlampir)\))",
    re.IGNORECASE,
)
_CALL = re.compile(
    r"(?:missed (?:group )?(?:voice|video) call(?:, tap to call back)?|waiting for this message(?:\. this may take a while)?"
    r"|you received a view once (?:voice )?(?:message|photo|video)\b.{0,80})\.?",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"[^\n]{1,200}\.\w{2,5}")


@dataclass(frozen=True, slots=True)
class MessageText:
    """What the speaker of a message said, and, where that is nothing, why it is none."""

    text: str
    reason: str = ""


def said_in(lines: Sequence[str], *, marks: bool) -> MessageText:
    """Return what the speaker of a message of WhatsApp said, without WhatsApp's own texts; where that is nothing, why.

    The name of a file that was sent is nothing said. Of several reasons the last line's is given.

    Args:
        lines: Of the message, without time and speaker.
        marks: Whether WhatsApp's own texts have a mark before them (iOS).
    """
    left: list[str] = []
    reason = ""
    for number, line in enumerate(lines):
        text = _without_edit_note(line)
        own_reason = _reason_of(text.strip(MARK + " "), is_first=number == 0)
        if own_reason:
            reason = own_reason
        elif marks and MARK in text:
            # WhatsApp's own text begins at the mark: a file was sent, or something happened in the chat.
            caption = text.partition(MARK)[0].strip()  # or the name of a file: it is the speaker's
            note = text.rpartition(MARK)[2].strip()
            reason = "media" if caption or "<" in text or _OMITTED.fullmatch(note) else "notice"
            if caption and not caption.endswith("•"):  # "report.pdf • 3 pages" is WhatsApp's
                left.append(caption)
        else:
            left.append(text)
    own_text = "\n".join(left).strip()
    is_file_name = reason == "media" and _FILE_NAME.fullmatch(own_text)
    if own_text and not is_file_name:
        return MessageText(own_text)
    return MessageText("", reason or "empty message")


def _without_edit_note(line: str) -> str:
    edited = _EDITED.search(line, max(0, len(line) - LONGEST_NOTE))
    return line[: edited.start()].rstrip() if edited else line


def _reason_of(line: str, *, is_first: bool) -> str:
    """Return why a line is none of the speaker's; empty where it may be one."""
    if _DELETED.fullmatch(line):
        return "deleted message"
    if _ENCRYPTED.match(line) or _CALL.fullmatch(line):
        return "notice"
    if _OMITTED.fullmatch(line) or _ATTACHED.fullmatch(line) or (is_first and _BRACKETED.fullmatch(line)):
        return "media"
    return ""
