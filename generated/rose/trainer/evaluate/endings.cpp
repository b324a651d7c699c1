// The questions.

#include "rose/trainer/evaluate/endings.h"

namespace rose::trainer {

namespace {

constexpr std::string_view lines =
    R"items(
{"group": "everyday", "context": "Anna put the kettle on the stove and lit the flame. After a few minutes the water", "endings": ["began to boil.", "turned into sand.", "asked a spoon.", "froze in the spout."], "label": 0}
{"group": "everyday", "context": "It had started to rain, and Tom had a long way to walk. He went back inside to fetch", "endings": ["the door.", "a sandwich.", "some snow.", "his umbrella."], "label": 3}
{"group": "everyday", "context": "The baby was asleep in the next room, so they", "endings": ["shouted up the stairs.", "shut the sky.", "talked in low voices.", "practised the drums."], "label": 2}
{"group": "everyday", "context": "She cut the bread into slices, spread butter on one of them and", "endings": ["sowed it.", "took a bite.", "rang it.", "switched it off."], "label": 1}
{"group": "everyday", "context": "The torch gave only a weak yellow light, because its batteries were", "endings": ["jealous.", "too heavy to lift.", "asleep.", "nearly empty."], "label": 3}
{"group": "everyday", "context": "He dropped the glass on the stone floor, and it", "endings": ["began to sing softly in the kitchen.", "flew away.", "broke into many pieces.", "grew taller."], "label": 2}
{"group": "everyday", "context": "The shop closes at six. At half past six the customers found the door", "endings": ["ill.", "locked.", "wet through with soup.", "hungry."], "label": 1}
{"group": "everyday", "context": "Before she crossed the road, the girl looked to both sides to see whether", "endings": ["a car was coming.", "her shoes were asleep.", "the road was thirsty.", "it was May."], "label": 0}
{"group": "everyday", "context": "The soup needed more salt. The cook took a pinch of it and", "endings": ["drove it to the station.", "sang.", "stirred it into the pot.", "folded it into a letter."], "label": 2}
{"group": "everyday", "context": "My bicycle has a flat tyre, so this morning I", "endings": ["drank it.", "walked to work.", "rode it faster than ever.", "fed it."], "label": 1}
{"group": "everyday", "context": "They planted the seeds in spring and watered them every day. By summer there were", "endings": ["tall plants in the bed.", "three fish.", "old coins in the milk and in the bread.", "bricks there."], "label": 0}
{"group": "everyday", "context": "The dog heard its owner's key in the lock and ran to the door,", "endings": ["tying its shoes.", "reading.", "peeling an orange.", "wagging its tail."], "label": 3}
{"group": "everyday", "context": "The lift was out of order, and so the old man had to take", "endings": ["the roof.", "the stairs.", "the rain.", "the long afternoon."], "label": 1}
{"group": "everyday", "context": "She had not eaten since the morning, and by the evening she was very", "endings": ["hungry.", "square.", "plural.", "flat."], "label": 0}
{"group": "everyday", "context": "He wanted to send his grandmother a letter, but there was not a single stamp", "endings": ["older than the rain.", "asleep in the soup.", "afraid of the cat.", "left in the drawer."], "label": 3}
{"group": "everyday", "context": "The room was cold, so she closed the window and", "endings": ["ate ice.", "took off her coat.", "put on a jumper.", "poured out the heat."], "label": 2}
{"group": "order", "context": "First the postman rings the bell. Then somebody opens the door. After that the postman", "endings": ["is not there yet.", "hands over the parcel.", "builds the house.", "rings for the first time."], "label": 1}
{"group": "order", "context": "To make tea, boil the water, pour it over the leaves, wait for some minutes, and", "endings": ["drink the tea from a cup.", "buy a kettle.", "boil the water first.", "pick the leaves."], "label": 0}
{"group": "order", "context": "Yesterday was Tuesday. Therefore today is", "endings": ["Monday.", "Friday.", "Sunday.", "Wednesday."], "label": 3}
{"group": "order", "context": "Ben is taller than Carl, and Carl is taller than Dan. So the shortest of the three is", "endings": ["Carl.", "Eve.", "Dan.", "Ben."], "label": 2}
{"group": "order", "context": "In the morning the sun rises in the east, and in the evening it sets in the", "endings": ["west.", "morning.", "east.", "sea."], "label": 0}
{"group": "order", "context": "One, two, three, four, five, six,", "endings": ["five.", "twelve.", "zero.", "seven."], "label": 3}
{"group": "order", "context": "A chick hatches from an egg, and when it has grown up it is called a", "endings": ["cow.", "calf.", "hen.", "egg."], "label": 2}
{"group": "order", "context": "January, February, March,", "endings": ["June.", "April.", "May.", "Monday."], "label": 1}
{"group": "words", "context": "The opposite of hot is", "endings": ["warm.", "fire.", "soup.", "cold."], "label": 3}
{"group": "words", "context": "A person who paints pictures is called a", "endings": ["painting.", "king.", "painter.", "baker."], "label": 2}
{"group": "words", "context": "One mouse, two", "endings": ["mousing.", "mice.", "mouse.", "cats."], "label": 1}
{"group": "words", "context": "Yesterday they went to the river; today they", "endings": ["go there again.", "gone there.", "going there again.", "goes there."], "label": 0}
{"group": "words", "context": "The keys that belong to the old car", "endings": ["am there.", "be on the table by the door.", "are on the table.", "is on the table."], "label": 2}
{"group": "words", "context": "A triangle has three sides and a square has", "endings": ["three.", "four.", "one.", "six."], "label": 1}
{"group": "words", "context": "Paris is the capital of France, and Rome is the capital of", "endings": ["Italy.", "Oslo.", "Peru.", "Europe."], "label": 0}
{"group": "words", "context": "Bees collect nectar from flowers and turn it into", "endings": ["milk.", "paper.", "ink.", "honey."], "label": 3}
{"group": "book", "context": "A language model assigns a probability to each possible next", "endings": ["Tuesday.", "cup.", "token.", "garden."], "label": 2}
{"group": "book", "context": "When the learning rate is far too high, the training loss", "endings": ["is a tokenizer.", "grows instead of falling.", "is in metres.", "is always exactly zero in the end."], "label": 1}
{"group": "book", "context": "The gradient tells the optimizer in which direction to change the", "endings": ["weights.", "moon.", "alphabet.", "rain."], "label": 0}
{"group": "book", "context": "A tokenizer splits a text into", "endings": ["graphics cards.", "soups.", "oars.", "tokens."], "label": 3}
{"group": "book", "context": "The validation loss is measured on text that the model has not", "endings": ["sung.", "seen in training.", "translated by hand.", "sung in a choir."], "label": 1}
{"group": "book", "context": "Attention lets a token look at the tokens that come", "endings": ["before it.", "without a bus.", "on a Sunday.", "from the shop."], "label": 0}
{"group": "book", "context": "A checkpoint stores the weights of a model, so that training can", "endings": ["wear a warmer coat.", "be eaten.", "be eaten at lunch.", "go on after a crash."], "label": 3}
{"group": "book", "context": "The softmax turns scores into probabilities that add up to", "endings": ["red.", "Thursday.", "one.", "minus seven."], "label": 2}
)items";

}  // namespace

std::string_view endings_lines() {
  return lines;
}

}  // namespace rose::trainer
