"""Beginnings of texts that a draft is trained on: prose, questions in the chat format, code."""

from __future__ import annotations

import numpy as np

SUBJECTS = (
    "the history of glass", "how tides work", "a missing umbrella", "coral reefs", "learning Greek",
    "a family restaurant", "the Vikings", "dreams", "comets", "rooftop gardens", "an old piano",
    "how dams are built", "ants", "a dry summer", "fractions", "the invention of the telephone",
    "jealousy", "birds of prey", "a secret tunnel", "trains", "breakfast", "earthquakes",
    "the French Revolution", "a birthday party", "spreadsheets", "the immune system", "recycling",
    "a shy dragon", "the stock market", "wool", "how to sleep better", "a job interview", "jazz",
    "the Amazon rainforest", "robots at school", "honey", "a long bus ride", "chess openings",
    "public libraries", "the human eye", "solar power", "a clever thief", "the Great Wall",
    "running a marathon", "mushrooms", "an honest mistake", "statistics", "old maps", "penguins",
    "electric guitars", "a broken promise", "rivers", "the first day at work", "vaccines",
    "the colour blue", "a house by the sea", "search engines", "wolves", "negotiation", "soup",
    "the Moon landing", "a stubborn goat", "climate change", "handwriting", "loneliness",
    "machine learning", "a village market", "cancer research", "the alphabet", "good manners",
)  # fmt: skip

#: Phrases after a subject, so that hardly two prompts are alike.
SETTINGS = (
    "in Japan", "in the nineteenth century", "for beginners", "in winter", "and money", "at night",
    "in ancient Rome", "on a small island", "seen by a child", "in the year 2100", "in a big city",
    "during the war", "without a plan", "and the law", "in three steps", "for the first time",
    "in Brazil", "among friends", "at the age of seventy", "in the desert", "on a small budget",
    "in the press", "before breakfast", "and its critics", "in a dream", "on the radio",
    "in Africa", "under water", "at school", "in the theatre", "and good luck", "after the storm",
    "in numbers", "by bicycle", "in the mountains", "as a profession", "in the laboratory",
    "and old age",
)  # fmt: skip

#: Messages to the assistant that the target is.
REQUESTS = (
    "Tell me about {}.", "Write a short story about {}.", "Explain {} to a child.",
    "Give me five facts about {}.", "What is difficult about {}?", "Write a poem about {}.",
    "I want to write an article on {}. How do I begin?", "Write an email to a friend on {}.",
    "What are the pros and cons of {}?", "Summarize what is known of {} in one paragraph.",
    "Write a dialogue between two people about {}.", "Make a plan for a lesson on {}.",
)  # fmt: skip

OPENINGS = (
    "An article about {}.\n\n", "Once upon a time, in a tale of {},", "Chapter 1: {}\n\n",
    "Question: What is {}?\nAnswer:", "Notes on {}:\n\n1.", "Most people believe that {}",
    "She had never cared for {}, but", "According to a new study on {},", "Dear Sir, about {}:",
    "The teacher asked the class about {}, and", "The trouble with {} is that", "# {}\n\n##",
    "He was thinking of {} when", "Unlike other books on {}, this one", "My memories of {}:",
    "Yesterday the council discussed {}.", "In this chapter we look at {}.", "Why {}? Because",
)  # fmt: skip

#: Short beginnings, some of which end in the middle of a line.
STARTS = (
    "The", "In", "A", "I", "It was", "When", "This", "If you", "We", "My", "On", "\"", "He", "She",
    "For", "As", "To", "1.", "##", "There is", "What", "How to", "You", "At", "After", "They",
    "def add(a, b):", "def count_words(text):\n    ", "class Account:\n    def __init__(self",
    "SELECT id, price FROM orders WHERE", "import os\n\ndef", "for (int i = 0; i < 10; i++) {",
    "The capital of Spain is Madrid. The capital of Norway is", "Solve: 4x - 3 = 13.\n",
    "Translate to French: \"Where is my hat?\"\n", "Ingredients:\n- 200 g of flour\n-",
    "Es war einmal ein", "Les enfants sont", "El perro", "Tuesday: sun. Wednesday:",
    "In 1912,", "The law says that", "Method: first heat", "\"Come in,\" said the", "Let n be a",
    "The patient was given", "Article 5.", "The company said on Monday that", "Q:", "Dear Maria,",
    "Step 1:", "The first of the three reasons", "The sun rose over", "Water freezes at",
)  # fmt: skip


PERSONS = (
    "Thomas", "The doctor", "Our neighbours", "Anna and her sister", "The old captain", "Nobody",
    "My uncle", "The minister", "A young engineer", "Mrs. Okafor", "The students", "Her lawyer",
    "The king's daughter", "Two strangers", "The nurse", "Everyone in the office", "Pedro",
    "A group of scientists", "The farmer", "Whoever wrote this", "The twins", "Our teacher",
)  # fmt: skip

DEEDS = (
    "had forgotten", "was the first to", "could not sleep because", "found a letter that",
    "decided to sell", "asked whether", "had always wanted", "went back to", "did not believe",
    "told us about", "looked at the map and", "wanted to know why", "will have to", "walked into",
    "spent the summer", "said quietly,", "was known for", "tried to repair", "never learned",
    "came home with", "showed that", "waited for", "laughed and", "was accused of",
)  # fmt: skip

#: Beginnings that take a number.
COUNTED = (
    "In {}, the city", "{} people were asked", "Chapter {}.", "There are {} reasons to",
    "{} ways to save money:\n1.", "What is {} times 7?", "At the age of {},", "Figure {}:",
    "By the year {}, most", "The train leaves at {} and", "for n in range({}):\n    ",
    "Page {}\n\n", "Solve: 3x + {} = 50.\n", "About {} kilometres from the coast,",
)  # fmt: skip

NAMES = ("total", "words", "average", "user", "file", "matrix", "price", "tree", "date", "email")
VERBS = ("find", "parse", "sort", "load", "remove", "update", "print", "merge", "check", "plot")


def prompts_for(count: int, rng: np.random.Generator) -> list[tuple[str, bool]]:
    """Random prompts, and whether each is a message in the chat format."""
    return [prompt_for(rng) for _ in range(count)]


def prompt_for(rng: np.random.Generator) -> tuple[str, bool]:
    def one(of: tuple[str, ...]) -> str:
        return of[rng.integers(len(of))]

    kind = rng.choice(6, p=(0.3, 0.3, 0.12, 0.14, 0.08, 0.06))
    if kind < 2:
        subject = one(SUBJECTS) + (f" {one(SETTINGS)}" if rng.random() < 0.7 else "")
        return one((REQUESTS, OPENINGS)[kind]).replace("{}", subject), kind == 0
    if kind == 2:
        return one(STARTS), False
    if kind == 3:
        return f"{one(PERSONS)} {one(DEEDS)}", False
    if kind == 4:
        return one(COUNTED).replace("{}", str(rng.integers(2, 2050))), False
    return f"def {one(VERBS)}_{one(NAMES)}(", False
