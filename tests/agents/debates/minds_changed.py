"""Debates in which two to four seats give up their "no" for the majority's "yes": once they only repeat it, once they bring a new argument.

Written after the figures of `agents.debates.measures` were fixed, on other subjects than those they were chosen on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Debate:
    question: str
    seats: str
    yes: tuple[str, ...]
    no: tuple[str, ...]
    copied: tuple[str, ...]
    argued: tuple[str, ...]


DEBATES = (
    Debate(
        question="Should the village rebuild the old swimming pool?",
        seats="Marta, Joost, Ines, Tariq, Wendy, Pawel and Lou",
        yes=(
            "Yes, rebuild the pool. Children here have to travel forty minutes by bus to learn to swim.",
            "Yes. The building is sound, only the pumps and the roof are worn out, and half of the money comes from the county.",
            "Yes, I want the pool back. It was the place where old and young met, and the village has no other.",
            "Yes, rebuild it: swimming lessons near home save lives.",
        ),
        no=(
            "No. The running costs will eat the budget of the library.",
            "No, a pool needs lifeguards, and we cannot find any.",
            "No. We should repair the school first.",
        ),
        copied=(
            "Yes. I have listened to the others and they are right: children should not have to travel forty minutes to learn to swim.",
            "I give in, Marta and Ines persuaded me. Rebuild the pool.",
            "If the county pays half of the money and only pumps and roof are worn out, then I am for it as well.",
        ),
        argued=(
            "Yes, because the fire brigade needs a reservoir on that hill, and the basin would serve as one during droughts.",
            "Yes. A physiotherapist from the hospital offers to rent the lanes every morning, which covers wages.",
            "I change my mind: the heat from the new bakery's ovens can warm the water for free.",
        ),
    ),
    Debate(
        question="Should our newspaper drop its anonymous comment section?",
        seats="Editor, Reporter, Lawyer, Moderator, Reader and Publisher",
        yes=(
            "Yes, drop it. Moderators spend their nights deleting insults, and two of them have resigned.",
            "Yes. Hardly one comment in fifty refers to the article at all.",
            "Yes, close the section. Sources tell us they no longer talk to us for fear of what is written beneath the story.",
            "Yes. Letters to the editor under a real name are enough.",
        ),
        no=(
            "No. Readers come back for the comments, it is our traffic.",
            "No, people in small towns dare to speak only without their names.",
        ),
        copied=(
            "Yes, drop it. Two moderators have resigned and hardly a comment refers to the article; I can't argue with that.",
            "I was wrong, I suppose. Everybody here says close the section, so let's close it.",
        ),
        argued=(
            "Yes. I looked at the subscriptions: those who post never pay, while paying customers switch the thread off in their profile.",
            "Yes, since a court in Hamburg held a publisher liable last month for defamation by unknown users.",
        ),
    ),
    Debate(
        question="Is it right to let pupils use calculators in every exam?",
        seats="seat 1, seat 2, seat 3, seat 4, seat 5, seat 6, seat 7",
        yes=(
            "Yes, exams should test understanding, and arithmetic by hand hides it.",
            "Yes, nobody computes by hand at work.",
            "Yes. Pupils with dyscalculia fail today for a skill that a device of five euros replaces.",
            "Yes, allow them everywhere; it makes marking quicker and fairer.",
        ),
        no=(
            "No, who never computes has no feeling for numbers.",
            "No. Rich pupils would bring better devices.",
            "No, mental arithmetic trains the memory.",
        ),
        copied=(
            "Yes. As my colleagues said, exams should test understanding, not arithmetic by hand.",
            "Okay, yes. I don't want to be the only one who says no.",
            "After the last round I lean towards yes, mostly because nobody computes by hand at work and marking gets quicker.",
        ),
        argued=(
            "Yes, because teachers could then set problems with real measurements instead of integers chosen to come out nicely.",
            "Yes: Sweden did it for ten cohorts, and enrolment in engineering went up.",
            "I now say yes, for estimation can be examined separately, in an oral of five minutes without any tool.",
        ),
    ),
    Debate(
        question="Should the orchestra stop flying to its concerts?",
        seats="Violin, Oboe, Timpani, Conductor, Harp, Tuba",
        yes=(
            "Yes, we cannot play for the climate and fly to the hall.",
            "Yes. Trains carry the instruments safely, the airline broke two cellos last year.",
            "Yes, night trains reach nine of our twelve venues.",
            "Yes. Our audience asks for it in every survey.",
        ),
        no=(
            "No, three days on a train for one evening in Lisbon tire the players.",
            "No. Promoters book us for single dates; without planes we lose them.",
        ),
        copied=(
            "I agree with Oboe. The airline broke two cellos, trains carry instruments safely. So yes.",
            "Yes then. You have all thought about this longer than I have and the audience asks for it.",
        ),
        argued=(
            "Yes, if we do residencies: a week in one city earns more than scattered evenings, and the hotel gives a discount.",
            "Yes, because musicians with small kids prefer fixed timetables to waiting at gates, our union rep collected forty signatures.",
        ),
    ),
    Debate(
        question="Should the hospital let an algorithm plan the shifts of its nurses?",
        seats="Nora, Ben, Chief, Aisha, Vikram, Sol, Greta, Hugo",
        yes=(
            "Yes. The head nurse loses a day each week on the plan and still everybody complains.",
            "Yes, a program treats all alike, and favourites get no better weekends.",
            "Yes, let it plan. It can respect the legal rest between shifts, which we break twice a month.",
            "Yes, as long as nurses may swap afterwards.",
            "Yes. Planning by hand cannot react when four call in sick.",
        ),
        no=(
            "No, a program does not know that two people can't work together.",
            "No. We would depend on a vendor.",
            "No, the staff was never asked.",
        ),
        copied=(
            "Yes, let the program plan. It treats all alike and respects the legal rest between shifts.",
            "Everyone else sees it this way, and I trust the chief. I vote yes now.",
            "My no was hasty. The head nurse loses a day each week, and favourites get better weekends; a program ends that.",
        ),
        argued=(
            "Yes: open-source planners exist, Utrecht runs one, so no vendor can lock us in.",
            "Yes, given that incompatible pairs may be entered as constraints, which a pilot on the children's ward proved.",
            "Yes, after the works council negotiated a veto and a trial of eight weeks.",
        ),
    ),
)
