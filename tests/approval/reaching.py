"""Commands of programs that reach servers, databases and services: what nobody is asked about, and what goes
to the confirmation service. `drop.sql` and `drop.js` delete, `schema.sql` only adds."""

EVERYDAY = r"""
git status
git log --oneline -5
git diff HEAD~1
git commit -m wip
git fetch origin
ls -la src
cat README.md
grep -rn 'drop table' migrations
find . -name '*.py' -exec grep -l TODO {} +
chmod +x scripts/build.sh
helm list
helm -n shop list -a
helm --kube-context prod status web
helm template . -f values.yaml
helm lint chart
helm repo update
kubectl get pods
kubectl --context prod -n shop get deploy -o wide
kubectl describe pod web-1
kubectl logs -f deploy/web --tail 20
kubectl config current-context
docker ps -a
docker images
docker logs web
docker build -t app:dev .
docker --context dev ps
docker compose up -d
docker compose logs web
docker inspect web
docker buildx ls
docker exec web ls /app
podman ps
psql -c 'select 1'
psql -h db -U app shop -c "select * from users where deleted"
psql shop -c '\d users'
mysql -e 'show tables' shop
sqlite3 app.db 'select count(*) from orders'
sqlite3 app.db .tables
redis-cli GET session:1
redis-cli -n 1 keys 'a*'
redis-cli info memory
npm test
npm run build -- --watch=false
npm install left-pad
npm ci
npx prettier --check .
pnpm install
yarn build
cargo build --release
cargo test
terraform plan -out plan.bin
terraform fmt -check
terraform -chdir=infra validate
systemctl status nginx
systemctl --user list-units
aws s3 ls s3://bucket
gcloud config list
gh pr view 12
python3 manage.py runserver
git stash list
helm get values web
helm search repo nginx
helm dependency build chart
kubectl -n shop --context=prod get events
kubectl get pods -o yaml
kubectl top nodes
kubectl rollout status deploy/web
kubectl explain pod
docker compose -f dev.yml up -d
docker compose -p shop ps
docker compose down
docker stop web
docker start web
docker tag a b
docker pull nginx
docker network ls
docker volume ls
docker run --rm alpine ls
docker cp web:/x .
docker stats --no-stream
docker compose exec web sh -c ls
docker system df
psql -tAc 'select count(*) from users'
psql -q shop -c "insert into t values ('drop')"
psql shop <<< 'select 1; select 2;'
psql -f schema.sql
psql "host=db dbname=shop" -c "select 1"
mysql shop < schema.sql
echo 'select 1' | psql
mongosh --eval 'db.users.find({a: 1}).limit(3).toArray()'
sqlite3 app.db < schema.sql
duckdb -c 'select * from "a.csv"'
redis-cli -h cache -p 6380 hgetall k
redis-cli --scan
redis-cli set a b
npm --prefix web run build
npm -w app test
npm uninstall left-pad
npm view react version
npm outdated
npm audit
yarn
yarn add x
pnpm dev
pnpm run lint
bun run dev
cargo add serde
pip list
poetry install
uv sync
gem list
terraform init
terraform show
terraform state list
terraform workspace select dev
tofu plan
aws --profile dev s3 ls
aws ec2 describe-instances
gcloud --project x compute instances list
az vm list
gh --repo a/b pr list
gh run view 1 --log
gh api repos/a/b
systemctl list-timers
systemctl -n 5 status web
vercel ls
fly status
fly -a web logs
heroku logs -a x
rails server
rails routes
rake test
bin/rails test
python3 manage.py makemigrations
python3 manage.py test
django-admin startproject x
flask run
flask db migrate
alembic current
alembic revision -m x
prisma generate
npx prisma generate
npx knex migrate:make x
docker network connect a b
docker run --rm -it -v "$PWD":/app -w /app node:20 npm test
docker compose exec -w /srv web ls
redis-cli get user:1
gcloud run services list
helm diff upgrade web chart
act -j deploy
duckdb -c 'summarize t'
php artisan route:list
mix test
etcdctl get x
rabbitmqctl list_queues
kafka-topics --list
pg_restore -l x.dump
docker network disconnect a b
podman machine start
podman kube play x.yaml
docker compose convert
docker model list
docker buildx imagetools inspect x
docker buildx bake
docker service ls
docker stack ps web
docker system info
psql -c 'COPY (SELECT 1) TO STDOUT'
black deploy
eslint deploy src
ack delete src
jest deploy
playwright test delete
tox -e publish
mytool deploy/app.yaml
mytool files list
mytool deployment
hcloud server list
supabase db diff
make build
mytool build x
convert a.png b.png
hugo server
poe test
just test
pm2 list
vault status
skopeo inspect x
pytest -q
ruff check .
eslint src
chmod 644 a
chmod +w a
"""

IRREVERSIBLE = r"""
helm un web
helm uninst web
helm --kube-context prod uninstall web
helm plugin-x web
npm unpub x
npm publ
npm dist-tag add x@1 latest
pnpm pub
yarn npm pub
yarn workspaces foreach npm publish
docker buildx bake --push
docker --context c push app
docker image push app
podman image push app
podman manifest push m docker://r/m
buildah push app
crane push a.tar r/app
oras push r/app a
django-admin migrate
python3 manage.py flush
./manage.py migrate
flask db upgrade
rails db:schema:load
flyway clean
liquibase drop-all
sqlx migrate run
dbmate drop
alembic stamp head
psql -f drop.sql
psql shop < drop.sql
cat drop.sql | psql shop
psql -c 'update users set admin = true'
psql -c 'do $$ begin perform wipe(); end $$'
mysql shop -e 'DELETE/**/FROM users'
mysql shop -e 'source drop.sql'
sqlite3 app.db '.read drop.sql'
mongosh --eval 'db.users.remove({})'
redis-cli FlushAll
redis-cli FLUSHALL
redis-cli -n 1 FLUSHDB
redis-cli CONFIG SET dir /tmp
find . -exec chmod 777 {} +
chmod -R a+rwx .
chmod --recursive 0777 .
chmod 777 -R .
systemctl kill nginx
systemctl isolate rescue
systemctl reboot
rc-service nginx stop
supervisorctl stop web
pm2 stop all
kubectl create -f x.yaml
kubectl replace -f x.yaml
kubectl -n shop ap -f x.yaml
kubectl --context prod patch deploy web -p x
terraform state rm x
terragrunt destroy
nomad job stop web
vault kv delete secret/x
gh api -X DELETE repos/a/b
helm rollback web 1
helm upgrad web chart
kubectl drain node1
kubectl cordon node1
kubectl taint nodes a b
kubectl label ns x y=z
kubectl -n p run x --image y
kubectl edit deploy x
kubectl annotate pod x a=b
kubectl autoscale deploy x
oc delete ns x
oc new-app x
docker swarm leave
docker service rm x
docker buildx build --output type=registry .
docker buildx imagetools create -t x y
docker compose push
docker trust sign x
nerdctl push x
podman-remote push x
npm deprec x
npm access public
npm team create
npm token create
gem pus x
twine up x
cargo publish
terraform apply
terraform taint x
terraform workspace delete x
tofu state rm x
terragrunt run-all apply
aws lambda update-function-code
aws --profile prod rds reboot-db-instance
gcloud sql instances patch x
az group create -n x
doctl apps create
gsutil rsync -d a gs://b
gh secret set X
gh workflow run deploy
gh api -XPOST repos/a/b/dispatches
systemctl soft-reboot
systemctl --force --force poweroff
systemctl edit web
service nginx stop
sv down x
supervisorctl shutdown
vercel promote x
vercel --prod
netlify deploy -p
fly d
fly scale count 0
heroku pg:reset
heroku run bash
firebase deploy
wrangler pages deploy
sls remove
pulumi destroy
pulumi up
cdk deploy
eb terminate
sam deploy
psql -f missing.sql
psql -f - < drop.sql
psql shop -Atf drop.sql
psql -fdrop.sql
psql shop -c '\i drop.sql'
mysql shop < drop.sql
python3 gen.py | psql
psql -c "$Q"
psql -c "call wipe()"
psql -c "merge into a using b"
mongosh drop.js
mongosh --eval 'db["dropDatabase"]()'
sqlcmd -Q 'drop table x'
clickhouse-client -q 'alter table x delete where 1'
redis-cli -u redis://x del a
redis-cli shutdown
redis-cli eval 'x' 0
echo FLUSHALL | redis-cli
mysqladmin drop x
rails db:drop
rake db:seed:replant
bin/rails db:reset
alembic upgrade head
flask db stamp head
prisma db push
npx prisma migrate reset
npx knex migrate:latest
sequelize db:migrate
goose -dir m postgres dsn up
diesel migration revert
flyway migrate
xtool destroy all
foo publish
hcloud server delete x
gcloud run services delete x
npx -y vercel@latest --prod
uvx twine upload dist/*
redis-cli keys '*' | xargs redis-cli del
docker stack rm web
docker config rm x
supabase db reset --linked
railway down
flux uninstall
argocd app delete x
kamal remove
php artisan migrate:fresh
mix ecto.drop
dotnet ef database drop
etcdctl del --prefix a
consul kv delete -recurse x
rabbitmqctl delete_queue x
kafka-topics --delete --topic x
pg_restore --clean -d prod x.dump
echo "select 5--1; drop table users" | mysql
bar -c prod delete x
find . -type f -exec chmod 666 {} \;
find . | xargs chmod a+w
chmod -R u+rwX,o+w .
chmod -Rf 777 .
sudo systemctl kill x
env A=1 helm un x
timeout 5 redis-cli FLUSHALL
sh -c 'helm un x'
"""
