"""English words for the search of tools: words that a query may contain, and what they stand for.

The list contains common words of offices, software, operation and everyday life. Words that are
used for few tools only do not belong here: they help a few requests and make others worse.
"""

STOP_WORDS = """
a about after again all also am an and any anything are as at back be because been before being
but by can cannot could did do does doing done don for from had has have having he her here him
his how i if in into is it its itself just let lets like ll m may maybe me mine might more most
much must my need needs no not now of off on one only onto or other our ours out over own per
please re s same shall she should so some someone something such t than that the their them then
there these they thing things this those to too under up upon us using ve very want wants was we
were what when where which while who whom whose why will with without would you your yours
"""

# "meant: said": each word of a line stands for the words before the colon, too.
WORDS = """
create add: make new build compose draft register insert setup establish write put generate prepare
delete remove: erase drop trash discard wipe purge destroy clear clean rid throw kill cancel away
update edit modify: change alter adjust correct revise rewrite patch fix set amend swap turn
rename move: name call
list get: show all which see view display enumerate give tell many every
get read: fetch retrieve show open view look check load see
describe get: details detail explain info information about inspect
search find: look seek locate lookup hunt query discover where
send: mail deliver forward message post dispatch submit
reply respond: answer respond react
post create publish: share announce publish write tweet
download export: save pull fetch obtain grab
upload import: put push attach load
export convert: save turn transform render
move transfer: drag shift relocate migrate put
copy duplicate: clone replicate fork
clone fork: copy
run execute: start launch trigger perform invoke call kick do test try
start: begin launch run boot on resume wake up
stop cancel: end halt abort terminate kill shut off quit down interrupt
trigger run dispatch: start launch kick fire
restart retry: again rerun redo reboot relaunch repeat
pause suspend: hold wait freeze snooze stop
schedule: plan book arrange timetable calendar recurring
enable activate: allow on activate switch
disable deactivate: off forbid deactivate switch block
approve accept: ok confirm agree sign permit accept thumbs
reject decline: refuse deny no decline dismiss
merge: combine join unite squash land
close resolve: finish done complete end solve
complete: finish done tick check mark
reopen open: again
assign: give owner delegate responsible hand
lock protect: protect freeze restrict secure
share permission: invite give grant access public link collaborate
permission access: right rights allowed may role grant privilege authorize
grant attach add: give allow permit let
revoke remove: withdraw deny take
invite add member: join guest
subscribe watch: follow listen observe track monitor
unsubscribe: unfollow leave
monitor: watch observe track supervise health
compare diff: difference differ versus changed contrast
diff change: difference modification delta touched
validate check verify: test sure confirm correct valid verify
summary summarize: overview tldr brief gist recap digest summarise
translate: translation language
count: many number total amount
aggregate sum: total average group statistics mean
sort order: arrange rank
filter: only where narrow rule
replace: swap substitute exchange
format style: color colour bold font look paint highlight layout
merge combine: join concatenate unify
split: divide separate break
convert: turn transform change into
calculate compute: math work sum formula
analyze analysis: examine investigate study analyse insight why
generate create: draw produce render plot
chart graph: plot diagram draw figure visualize curve
image picture: photo pic screenshot drawing icon logo graphic
screenshot capture: snapshot picture photo image screen
video: movie film clip recording
audio: sound voice music song recording
file document: doc attachment paper
document doc: text docx letter report word
folder directory: dir path
path: folder directory location
spreadsheet workbook sheet: excel table xlsx csv grid
worksheet sheet: tab
cell range: value field
row record: line entry item
column field: attribute property
table: sheet grid base
presentation slide: deck powerpoint ppt pptx talk keynote
paragraph text: section sentence passage
comment: note remark feedback reply annotation
note: memo minutes jotting
annotation: highlight mark remark
tag label: category mark keyword
page: article site wiki document
wiki page: knowledge handbook confluence
link url: address hyperlink href
email mail message: inbox letter gmail outlook mailbox newsletter
message: chat text dm post write
channel: room chat topic group
thread conversation: discussion chat
reaction: emoji like thumbs
contact person: people address customer phone client
user member: person people who account somebody colleague employee staff
member user: participant team belong
group team: people department crew
owner: responsible belongs
account: customer company client login
organization: company org firm workspace
calendar event: appointment meeting schedule date diary
event meeting: appointment call invite session
meeting: call conference appointment sync
availability free: busy slot time available
task todo: reminder chore job item action
reminder task: remember remind
due date: deadline overdue until late expire
today: now day
project: board workspace initiative
board: kanban trello
card: ticket task item
checklist: steps list subtask
sprint iteration: cycle
backlog: later unplanned
milestone: goal deadline
issue ticket: bug problem defect task story
issue error: bug crash exception problem failure
error exception: crash failure fault wrong broken bug problem fail
log: protocol output print stdout journal
trace span: slow latency request
metric: measure number statistic performance cpu memory usage
usage statistics: consumption stats cpu memory use much
alert alarm: warning notification page incident fire
silence mute: quiet shut snooze suppress
incident: outage emergency down fire
oncall: duty pager call shift
dashboard: panel overview board
status state: condition progress health ok green
health status: alive healthy up running
history log: past previous earlier last ago activity changes
activity audit: history happened recent did
version revision: release history older
release: version publish ship deploy
deployment deploy: rollout release ship environment
rollback revert: undo back restore
revert restore: undo back reset recover
restore: recover undo bring undelete
backup snapshot: save copy
environment: staging production prod env
build job: compile ci run
pipeline workflow: ci build run job
workflow: automation action ci pipeline
job: build task run
artifact: output binary produced
test: check spec suite flaky
repository repo: project code source
branch: line fork
commit: save change check revision
pull merge: pr mr request
review: look check feedback reviewer
reviewer: look check
conflict: clash
code: source program function
secret variable: password token credential key
token key: credential api password secret
password secret: credential passphrase
key: entry
policy: rule permission allow
role: permission right
container: docker pod service
pod container: kubernetes k8s
image container: registry
cluster node: kubernetes k8s
kubernetes: k8s kube
scale: replicas resize more size instances
log container: output printed
shell exec command: terminal bash run console
command exec: run terminal shell
server host: machine computer vm instance
host server: machine node
network: lan connection
domain dns: site www hostname point
website site: web homepage page
hook webhook: callback
database: db postgres mysql sql store
query sql: select rows ask statement
collection: table
index: speed
schema: structure columns fields layout
expire ttl: vanish timeout lifetime expiry
cache: redis
queue list: line push
publish: message topic
browser page: tab site web
navigate: go visit browse open
click: press tap push button
type fill: enter input write
fill form: enter complete
scrape crawl: extract fetch website collect
extract: pull parse take get text
web search: internet google online news
news: headlines latest
article: page text story
paper article: publication study pdf literature research
citation bibliography: reference cite bibtex
reference citation: source
library collection: books shelf
place location: where near nearby restaurant shop poi around
near nearby: around close
directions route: drive way car walk travel long far
distance: far long duration
geocode address: coordinates where location
coordinates: position latitude longitude
elevation: high altitude height
weather: rain temperature forecast
time: clock hour now
timezone: time clock
light: lamp bulb
device entity: lamp switch thermostat sensor
invoice: bill receipt
payment: pay paid money transaction
receivable: owe owed unpaid
report: summary statement overview
profit: earn earnings income loss money
revenue: sales income money
price: cost much
budget: money cost spending
customer contact: client buyer
deal opportunity: sale
company: business firm organization
lead contact: prospect
feature flag: toggle switch experiment
flag toggle: switch feature
survey form: questionnaire poll
response submission: answer reply
form: survey contact
question: ask poll
memory: remember recall know
recall search: remember
fact: observation know
relation: connection link
template: blueprint boilerplate
setting config: preference configuration option
configuration setting: config options
size: big large small
duplicate: same twice double
permission member: who access see
visibility public: everyone internet private open
vulnerability security: vulnerable cve risk leak
scan: vulnerability security inspect
notification: new inbox unread alert
unread: new
attachment: file attached
signature: footer
archive: old
trash delete: bin
spam junk: unwanted
dependency package: library module
package: library module dependency
subnet: network
region: zone country area
"""
