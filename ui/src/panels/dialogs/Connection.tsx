import { Button } from '@mantine/core'
import {
  IconCircleCheck,
  IconHistory,
  IconInfoCircle,
  IconLink,
  IconPlayerStopFilled,
  IconPlugConnectedX,
  type Icon,
} from '~/parts/icons'
import type { ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { useConnection } from '~/api/connection'
import { useCommand, useSession } from '~/api/queries'
import type { Session } from '~/api/types'
import { useOffered } from '~/state/actions'
import { useView } from '~/state/store'
import classes from './dialogs.module.css'
import { dialogTexts } from './texts'

/** The strip below the header: the server is lost, the run has ended, versions differ, an earlier step is shown. */
export function Connection() {
  const { data: session } = useSession()
  const run = useView((view) => view.run)
  const gone = useConnection((connection) => connection.gone)
  return (
    <div aria-live="polite">
      <ServerLost />
      {session?.id === run && gone?.run !== run && (
        <>
          <RunState session={session} />
          <LinkedStep session={session} />
        </>
      )}
    </div>
  )
}

function Strip(props: { tone: 'bad' | 'note' | 'past'; icon: Icon; testId: string; children: ReactNode }) {
  const { icon: Icon } = props
  return (
    <div className={classes['strip']} data-tone={props.tone} data-testid={props.testId}>
      <Icon size={15} aria-hidden />
      {props.children}
    </div>
  )
}

function ServerLost() {
  const { t, i18n } = useTranslation(dialogTexts)
  const { isConnected, lostAt, tryNow } = useConnection()
  if (isConnected) return null
  const since = new Date(lostAt ?? 0).toLocaleTimeString(i18n.language)
  return (
    <Strip tone="bad" icon={IconPlugConnectedX} testId="server-lost">
      <strong>{t('lost', { since })}</strong>
      <span>{t('lostText')}</span>
      <Button size="compact-xs" variant="default" onClick={tryNow}>
        {t('tryNow')}
      </Button>
    </Strip>
  )
}

function RunState({ session }: { session: Session }) {
  const { t } = useTranslation(dialogTexts)
  const { mutate: command } = useCommand()
  const terminate = useOffered((offered) => offered.actions['run.terminate'])
  const { step, message } = session
  const present = session.present_step
  if (session.state === 'finished' || session.state === 'terminated') {
    const icon = session.state === 'finished' ? IconCircleCheck : IconPlayerStopFilled
    return (
      <Strip tone="note" icon={icon} testId="run-ended">
        <span>{t(session.state, { step })}</span>
        {message && <span title={message}>{message}</span>}
      </Strip>
    )
  }
  if (session.state === 'lost' || session.state === 'mismatch') {
    return (
      <Strip tone="bad" icon={IconPlugConnectedX} testId={`run-${session.state}`}>
        <strong>{t(session.state === 'lost' ? 'lostRun' : 'mismatch', { step })}</strong>
        <span title={message}>{message}</span>
        {terminate && terminate.disabled === undefined && (
          <Button size="compact-xs" variant="default" onClick={terminate.run}>
            {terminate.label}
          </Button>
        )}
      </Strip>
    )
  }
  if (typeof present === 'number') {
    return (
      <Strip tone="past" icon={IconHistory} testId="run-past">
        <span>{t('past', { step, present })}</span>
        <Button
          size="compact-xs"
          variant="default"
          onClick={() => command({ action: 'go_to_step', steps: present })}
        >
          {t('toPresent', { present })}
        </Button>
      </Strip>
    )
  }
  return message && session.state === 'paused' ? (
    <Strip tone="note" icon={IconInfoCircle} testId="run-message">
      <span title={message}>{message}</span>
    </Strip>
  ) : null
}

/** Offers to go to the step named by a link; not automatic, as other users may be viewing the run. */
function LinkedStep({ session }: { session: Session }) {
  const { t } = useTranslation(dialogTexts)
  const linked = useView((view) => view.linkedStep)
  const set = useView((view) => view.set)
  const { mutate: command } = useCommand()
  if (linked === null || linked === session.step || session.state === 'connecting') return null
  return (
    <Strip tone="past" icon={IconLink} testId="linked-step">
      <span>{t('linked', { linked, step: session.step })}</span>
      {session.capabilities.can_go_to_step && (
        <Button
          size="compact-xs"
          variant="default"
          onClick={() => command({ action: 'go_to_step', steps: linked })}
        >
          {t('goThere', { linked })}
        </Button>
      )}
      <Button size="compact-xs" variant="subtle" onClick={() => set({ linkedStep: null })}>
        {t('stay')}
      </Button>
    </Strip>
  )
}
