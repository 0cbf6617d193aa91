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

# Words with which a question begins, and words in the names of tools that answer one.
QUESTIONS = "which what who whose where when how is are does do did has have was were why any"
READING = "list get read search find query show view describe fetch count"

# "meant: said": each word of a line stands for the words before the colon, too.
WORDS = """
create add: make new build compose draft register insert setup establish write put prepare begin
create: made built wrote written save
delete remove: erase drop trash discard wipe purge destroy clear clean rid throw kill cancel forget
remove detach: cut take withdraw revoke left
update edit modify: change alter adjust correct revise rewrite fix amend mark switch
set update: adjust turn configure mark
rename move: call
list get: show see view display enumerate overview available exist
get read: fetch retrieve show open view look check see tell content contents inside stored
describe: detail detailed explain info information inspect
search find: look seek locate lookup hunt discover mention mentioned
query search: ask question select
send: mail deliver forward message post write tell notify inform sent
reply: answer respond react
response answer: reply answered
publish: release announce post live
download export: save pull fetch obtain grab
upload import: put push attach load
export convert: save turn transform render pdf
import: load migrate bring
move: drag shift relocate transfer sort put
copy duplicate: clone replicate
fork clone: copy
run execute: start launch trigger perform invoke call kick ran
start run: begin launch boot wake trigger
stop cancel: end halt abort terminate kill quit interrupt
stop pause: freeze hold suspend
trigger dispatch: start launch kick run
restart retry: rerun redo reboot relaunch repeat fail
schedule: plan arrange timetable daily weekly monthly regularly nightly
enable activate: allow switch on
disable deactivate: forbid switch off
approve accept: ok okay confirm agree sign permit
decline reject: refuse deny dismiss
tentatively: maybe perhaps
merge: combine join unite
close resolve: finish done complete end solve fixed
complete: finish done tick finished
assign: give owner delegate responsible hand assignee
lock protect: freeze restrict secure password
share permission: invite grant access public link collaborate
permission access: right allowed allow role grant authorize
permission restriction: only allowed hide private
grant attach: allow permit give
member user: participant person people team belong colleague coworker employee staff somebody
invite add member: join guest
subscribe watch: follow listen observe
monitor: watch observe supervise
compare diff: difference differ versus changed contrast
diff change: difference delta touched changed
validate check: test verify confirm correct valid
summary: summarize summarise overview gist recap digest brief short
count: number total amount
aggregate: total average sum group statistic mean per
sort order: arrange rank
replace: swap substitute exchange
format: style color colour bold font highlight layout pretty
merge: concatenate unify
split: divide separate break
calculate compute: math estimate
analyze analysis: examine investigate study analyse insight cause reason
simulate: allowed pretend
generate create: draw produce render plot
chart graph: plot diagram draw visualize curve visualise trend
histogram: distribution distributed frequency spread
pivot: summarise summarize group breakdown
formula: sum number calculate
image picture: photo pic drawing icon logo graphic illustration
screenshot capture: snapshot picture photo image
video: movie film clip recording
transcript: said spoken recording minutes
file document: doc attachment
document: text docx letter report word contract
folder directory: dir path
spreadsheet workbook: excel xlsx csv sheet
worksheet sheet: tab
cell range: value
record row: line entry customer
column field: attribute property
presentation slide: deck powerpoint ppt pptx talk keynote
powerpoint: deck slide ppt pptx
paragraph text: section sentence passage
comment: note remark feedback reply
annotation: highlight mark remark
tag label: category mark
page: article site
wiki page: knowledge handbook
link associate: connect relate belong attach
email mail message: inbox letter gmail outlook mailbox newsletter
message: chat dm text
channel: room chat
thread conversation: discussion chat
history message: conversation discussion said
reaction: emoji like smiley
contact: person people customer phone client supplier address
user member: account login people
user identity: whoami myself me logged
organization: company org
calendar event: appointment meeting date diary agenda
event meeting: appointment call invitation invite room
online meeting: call conference video
rule filter: automatic automatically
availability free busy: slot free available
task todo: reminder chore item remember remind
reminder: remember remind
priority: urgent important
due date: deadline overdue until late
project: board workspace
card: ticket task
checklist: step subtask
sprint: iteration
backlog: later unplanned
milestone: goal deadline
issue ticket: bug problem defect story
issue error: bug crash exception problem failure
error exception: crash failure fault wrong broken bug fail
log: protocol output printed print stdout
logbook history: opened happened yesterday
process: running
console message: error javascript output
script javascript: js snippet code
evaluate run: snippet js code
trace span: slow latency request
performance: slow fast speed load quick
metric: measure statistic cpu memory usage load
usage statistics stats: consumption consume cpu memory use
alert alarm: warning notification incident ring
silence mute downtime: quiet shut maintenance snooze
incident: outage emergency
oncall: duty pager shift call
dashboard: panel overview
status: state condition progress healthy finished yet green passed
health status: alive healthy running
history log: past previous earlier ago
activity audit: history happened changed flipped
version revision: release history older
release: version ship deploy
deployment deploy: rollout release ship live
rollout deployment: rolled
rollback revert: undo restore previous
restore: recover undo undelete
backup snapshot: save
environment variable: env setting
environment: staging production prod env
build job: compile ci run
pipeline workflow: ci build
artifact: output binary produced
repository repo: project code source
branch: feature line
commit: save change check
pull request: pr
merge request: mr
review: look check feedback
reviewer: look review
conflict: clash
secret variable: password token credential
access key: credential token
policy: rule permission
container: docker service
pod: kubernetes k8s container
kubernetes kubectl: k8s pod cluster deployment namespace
image: registry
prune: unused space clean disk
scale: replica more instance
exec command: shell terminal bash run
host: server machine computer vm
dns domain: record site www hostname
website site: web homepage
database: db postgres mysql
query sql: select row where
collection: table
schema: structure column field
expire ttl: lifetime expiry timeout
queue push: line waiting
browser: page tab site web press visit
navigate: go visit browse open
click: press tap push button
type fill: enter input write
form fill: enter signup
scrape crawl extract: website pages text content documentation
style css: stylesheet look appearance
gist: snippet
region: country location
map crawl: website pages urls
extract: pull parse take text
web: internet online
news: headline latest
paper article: publication study literature research
bibliography citation: reference cite bibtex
library collection: book shelf
wikipedia article: encyclopedia
place detail: phone opening address hours
place search local: where near nearby restaurant shop cafe hotel pharmacy pizza
directions: route drive way car walk travel bike train
distance: far long
isochrone: reach reachable within
geocode: address coordinate latitude longitude
elevation: high altitude height
time timezone: clock hour pm am
light: lamp bulb
climate: heating temperature thermostat
service entity: lamp switch heating device turn light
invoice: bill receipt
payment: pay paid
receivable aged: owe owed unpaid overdue debt
profit loss: earn earning income lose
balance bank: money account cash
customer contact: client buyer vendor supplier
opportunity deal: sale
company object: business firm
feature flag: toggle experiment
form: survey questionnaire poll
submission response: answer visitor filled
entity observation: remember know fact memory
node: know
memory graph: remember recall know note noted
template: blueprint boilerplate
setting config configuration: preference option
size: big large
width: wide wider narrow
height: tall high
layout: wider hide
duplicate: twice same double
visibility public: everyone internet private
vulnerability security: vulnerable cve leak unsafe
notification: unread inbox new
archive: old keep hide
purge cache: stale outdated
junk: spam unwanted
dependency package: library module
"""
