"""The same ban in twenty languages: no more jokes."""

STOP_JOKES = {
    "en": "Stop telling jokes.",
    "de": "Hör auf, Witze zu machen.",
    "fr": "Arrête de raconter des blagues.",
    "es": "Deja de contar chistes.",
    "pt": "Pare de contar piadas.",
    "it": "Smettila di raccontare barzellette.",
    "nl": "Stop met grappen vertellen.",
    "sv": "Sluta dra skämt.",
    "da": "Hold op med at fortælle vittigheder.",
    "fi": "Lopeta vitsien kertominen.",
    "pl": "Przestań opowiadać żarty.",
    "cs": "Přestaň vyprávět vtipy.",
    "ru": "Перестань рассказывать анекдоты.",
    "uk": "Припини розповідати анекдоти.",
    "el": "Σταμάτα να λες ανέκδοτα.",
    "tr": "Şaka yapmayı bırak.",
    "ar": "توقف عن إلقاء النكات.",
    "hi": "चुटकुले सुनाना बंद करो।",
    "ja": "冗談を言うのをやめて。",
    "zh": "别再讲笑话了。",
}
