import { NumberInput, Tooltip, UnstyledButton, VisuallyHidden } from '@mantine/core'
import {
  IconArrowRightToArc,
  IconPlayerPause,
  IconPlayerPlay,
  IconPlayerSkipBack,
  IconPlayerSkipForward,
  IconPlayerStop,
  IconRefreshDot,
  IconStepInto,
  IconStepOut,
} from '~/parts/icons'
import { useCallback, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useConnection } from '~/api/connection'
import { useProgress, useSession } from '~/api/queries'
import type { Session } from '~/api/types'
import { ActionButton } from '~/parts/ActionButton'
import { StateBadge } from '~/parts/StateBadge'
import { useView } from '~/state/store'
import classes from './header.module.css'
import { Preferences } from './Preferences'
import { RankSelect } from './RankSelect'
import { RunMenu } from './RunMenu'
import { StepBox } from './StepBox'
import { headerTexts } from './texts'
import { useRunActions } from './useRunActions'

const SIZE = 17

/** The header: the run, its step, and the buttons that control it. */
export function Header() {
  const { t } = useTranslation(headerTexts)
  const { data: session } = useSession()
  const run = useView((view) => view.run)
  const openRun = useView((view) => view.openRun)
  const isGone = useConnection((connection) => connection.gone?.run === run)
  const isOpen = session !== undefined && session.id === run && !isGone
  return (
    <header className={classes['header']} data-testid="panel-header">
      <VisuallyHidden component="h1">Tensight</VisuallyHidden>
      <Tooltip label={t('runs')}>
        <UnstyledButton
          className={classes['logo'] ?? ''}
          onClick={() => openRun('')}
          aria-label={`Tensight: ${t('runs')}`}
        >
          <img src="./icon.svg" width={20} height={20} alt="" />
          <span>Tensight</span>
        </UnstyledButton>
      </Tooltip>
      <RunMenu />
      {isOpen && (
        <>
          <RankSelect />
          <StepPosition session={session} />
        </>
      )}
      <span className={classes['space']} />
      <Preferences />
    </header>
  )
}

function StepPosition({ session }: { session: Session }) {
  const { t } = useTranslation(headerTexts)
  const [steps, setSteps] = useState(1)
  const [isAsking, ask] = useState(false)
  useRunActions(
    steps,
    useCallback(() => ask(true), []),
  )
  return (
    <>
      <span className={classes['divider']} />
      <StateBadge state={session.state} message={session.message} />
      <StepBox session={session} isAsking={isAsking} ask={ask} />
      <StoppedAt session={session} />
      <Progress />
      <span className={classes['divider']} />
      <div className={classes['control']} role="toolbar" aria-label={t('control')}>
        <ActionButton id="run.continue" icon={<IconPlayerPlay size={SIZE} />} colour="var(--go)" />
        <ActionButton id="run.pause" icon={<IconPlayerPause size={SIZE} />} />
        <ActionButton id="run.back" icon={<IconPlayerSkipBack size={SIZE} />} />
        <ActionButton id="run.step" icon={<IconPlayerSkipForward size={SIZE} />} />
        <Tooltip label={t('steps')}>
          <NumberInput
            aria-label={t('steps')}
            data-testid="steps"
            value={steps}
            onChange={(value) => setSteps(typeof value === 'number' && value >= 1 ? value : 1)}
            min={1}
            max={1_000_000}
            clampBehavior="strict"
            allowDecimal={false}
            allowNegative={false}
            hideControls
            className={classes['steps'] ?? ''}
          />
        </Tooltip>
        <ActionButton id="run.previousNode" icon={<IconStepOut size={SIZE} />} />
        <ActionButton id="run.nextNode" icon={<IconStepInto size={SIZE} />} />
        <ActionButton id="run.goToStep" icon={<IconArrowRightToArc size={SIZE} />} />
        <ActionButton id="run.recheck" icon={<IconRefreshDot size={SIZE} />} />
        <ActionButton id="run.terminate" icon={<IconPlayerStop size={SIZE} />} colour="var(--hit)" />
      </div>
    </>
  )
}

/** The operator at which the run is stopped, if any. */
function StoppedAt({ session }: { session: Session }) {
  const { t } = useTranslation(headerTexts)
  const selectNode = useView((view) => view.selectNode)
  if (!session.node) return null
  const rank = session.ranks.find((record) => record.node === session.node)?.rank ?? 0
  return (
    <Tooltip label={t('stoppedAt', { node: session.node })} multiline maw={480}>
      <UnstyledButton
        className={classes['node'] ?? ''}
        data-testid="stood-at"
        onClick={() => selectNode({ rank, graph: session.graph, name: session.node })}
      >
        {session.node.split('/').at(-1)}
      </UnstyledButton>
    </Tooltip>
  )
}

/** The progress of the run's current work. */
function Progress() {
  const progress = useProgress()
  if (!progress) return null
  const share = progress.total > 0 ? Math.min(progress.done / progress.total, 1) : 0
  return (
    <Tooltip label={`${progress.what} · ${progress.done} / ${progress.total}`}>
      <div
        className={classes['progress']}
        role="progressbar"
        aria-label={progress.what}
        aria-valuenow={Math.round(share * 100)}
      >
        <div style={{ width: `${share * 100}%` }} />
      </div>
    </Tooltip>
  )
}
