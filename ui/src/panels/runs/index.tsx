import { ActionIcon, Loader, Skeleton, Title, Tooltip } from '@mantine/core'
import { IconRefresh } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useConnection } from '~/api/connection'
import { useSessions } from '~/api/queries'
import { Failure, Notice } from '~/parts/Notice'
import { useView } from '~/state/store'
import { DumpTable } from './DumpTable'
import { Gone } from './Gone'
import { useDumps, useRefreshDumps } from './queries'
import classes from './runs.module.css'
import { SessionTable } from './SessionTable'
import { useSearches } from '~/panels/search/queries'
import { StartCommands } from './StartCommands'
import { runsTexts } from './texts'
import { SearchTable } from './SearchTable'
import { useArrival } from './useArrival'

export { NotOpened, Opening } from './Opening'

/** The list of runs: trainings, open dumps, dumps on disk, and how to start a training. */
export function Runs() {
  const run = useView((view) => view.run)
  const gone = useConnection((connection) => connection.gone)
  return (
    <div className={classes['page']} data-testid="panel-runs">
      {gone && gone.run === run && (
        <div className={classes['gone']}>
          <Gone run={run} reason={gone.reason} />
        </div>
      )}
      <div className={classes['columns']}>
        <div>
          <Sessions />
          <Searches />
          <Dumps />
        </div>
        <Start />
      </div>
    </div>
  )
}

function Sessions() {
  const { t } = useTranslation(runsTexts)
  const { data: sessions, error, refetch } = useSessions()
  useArrival(sessions)
  return (
    <section className={classes['section']} aria-labelledby="runs-open">
      <div className={classes['title']}>
        <Title order={2} size="h5" id="runs-open">
          {t('open')}
        </Title>
      </div>
      {sessions?.length ? (
        <SessionTable sessions={sessions} />
      ) : sessions ? (
        <Notice icon={<Loader size="sm" type="dots" />} title={t('waiting')} testId="waiting">
          {t('waitingText')}
        </Notice>
      ) : error ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : (
        <Skeleton h={96} />
      )}
    </section>
  )
}

/** The hyper-parameter searches; nothing if there are none. */
function Searches() {
  const { t } = useTranslation(runsTexts)
  const { data: searches } = useSearches()
  if (!searches?.length) return null
  return (
    <section className={classes['section']} aria-labelledby="runs-searches">
      <div className={classes['title']}>
        <Title order={2} size="h5" id="runs-searches">
          {t('searches')}
        </Title>
      </div>
      <SearchTable searches={searches} />
    </section>
  )
}

function Dumps() {
  const { t } = useTranslation(runsTexts)
  const { data: dumps, error, refetch } = useDumps()
  const { mutate: refresh, isPending } = useRefreshDumps()
  return (
    <section className={classes['section']} aria-labelledby="runs-dumps">
      <div className={classes['title']}>
        <Title order={2} size="h5" id="runs-dumps">
          {t('dumps')}
        </Title>
        <Tooltip label={t('refresh')}>
          <ActionIcon size="sm" aria-label={t('refresh')} loading={isPending} onClick={() => refresh()}>
            <IconRefresh size={14} />
          </ActionIcon>
        </Tooltip>
      </div>
      {dumps?.length ? (
        <DumpTable dumps={dumps} />
      ) : dumps ? (
        <p className={classes['note']}>{t('noDumps')}</p>
      ) : error ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : (
        <Skeleton h={160} />
      )}
    </section>
  )
}

function Start() {
  const { t } = useTranslation(runsTexts)
  return (
    <aside className={classes['start']} aria-labelledby="runs-start">
      <Title order={2} size="h5" id="runs-start">
        {t('start')}
      </Title>
      <StartCommands />
    </aside>
  )
}
