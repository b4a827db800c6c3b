package record

import (
	"crypto/rand"
	"encoding/hex"
	"math/big"
	"strings"
)

// NewID returns a random id of that many words, at least two, such as "fancy-mallard". People can pronounce it. The
// id may be in use, and creating its ref fails then.
func NewID(words int) string {
	adjectives, animals := strings.Fields(adjectiveList), strings.Fields(animalList)
	parts := []string{draw(adjectives), draw(animals)}
	for len(parts) < words {
		parts = append([]string{draw(adjectives)}, parts...)
	}
	return strings.Join(parts, "-")
}

// NewToken returns 16 random hexadecimal digits, for names that are in use nowhere.
func NewToken() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func draw(list []string) string {
	n, err := rand.Int(rand.Reader, big.NewInt(int64(len(list))))
	if err != nil {
		panic("no randomness from the operating system: " + err.Error())
	}
	return list[n.Int64()]
}

const adjectiveList = `able agile alert amber ample ancient apt arctic ardent azure
balmy bare basic bold brave breezy brief bright brisk broad bronze busy calm candid
careful cheery chief civil classic clean clear clever close coastal comic coral cosmic
cosy crisp curious daily dapper daring deep deft dense direct distant dry dusky eager
early earnest eastern easy elder equal even exact fabled fair famous fancy fast festive
final fine firm first fleet fluent fond formal frank free fresh frosty full gentle gilded
glad golden good grand great green happy hardy hazel hearty hidden high honest humble
icy ideal inner ivory jolly jovial keen kind large lasting late lavish lawful leafy level
light lively local lofty logical long loud loyal lucid lucky lunar major maple marine
mellow merry mighty mild minor misty modern modest mossy muted narrow native neat new
nimble noble northern novel oaken olive open orange orderly outer pale patient peaceful
pearly plain plucky polar polite prime prompt proper proud prudent pure quick quiet rapid
rare ready regal rich rosy round royal rustic sage sandy scenic secret serene sharp shiny
short silent silver simple sincere sleek slim smart smooth snowy social soft solar solid
sound southern spare speedy spring stable steady stoic stout strict strong sturdy subtle
sunny super sure swift tall tame tawny tender tidy timely tiny topical tough tranquil true
trusty upbeat urban useful valid vast velvet vital vivid warm western whole wide wild wise
witty woven young zesty`

const animalList = `adder albatross alpaca ant antelope badger barbel bat bear beaver bee
beetle bison bittern boar bobcat bream bunting buzzard camel capybara caribou carp cat
chamois cheetah chough cicada civet clam cod condor coot cormorant cow crab crane cricket
crow cuckoo curlew dace deer dingo dipper dog dolphin donkey dormouse dotterel dove dragonfly
duck dunlin dunnock eagle earwig eel egret eider elk emu ermine falcon ferret finch firefly
flamingo fox frog gannet gazelle gecko gerbil gibbon giraffe gnu goat goldfinch goose gopher
grayling grebe grouse gull halibut hamster hare harrier hawk hedgehog heron herring hobby
hornet horse hound ibex ibis iguana jackal jackdaw jaguar jay kestrel kingfisher kite kiwi
koala lamprey lapwing lark lemming lemur leopard limpet linnet lion lizard lobster loon lynx
macaw mackerel magpie mallard manatee mantis marmot marten martin merlin mink minnow mole
moose moth mouse mule mussel newt nightjar nuthatch ocelot octopus okapi oriole osprey otter
owl ox oyster panda panther parrot partridge pelican penguin perch petrel pheasant pigeon pike
pipit plover pony porpoise puffin puma quail rabbit raccoon ram raven redshank redstart robin
rook ruff salmon sandpiper seal serin shark sheep shrew shrike siskin skate skylark sloth
snail snipe sparrow spider squid squirrel stag starling stoat stork sturgeon swallow swan
swift tapir teal tern thrush tiger tit toad tortoise trout tuna turnstone turtle viper vole
vulture wagtail walrus warbler wasp weasel whale wheatear whimbrel wigeon wolf wombat
woodcock woodlark woodpecker wren yak zebra`
